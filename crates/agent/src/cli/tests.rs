use clap::Parser as _;

use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn read(words: &[&str]) -> Arguments {
    let words = ["tidegate", "agent"].iter().chain(words).map(OsString::from);
    Line::parse_from(normalised(words).skip(1)).arguments
}

#[test]
fn row_5_both_spellings_of_options() {
    for words in [["-version"], ["--version"], ["-version=true"], ["--version=true"]] {
        assert!(read(&words).version, "{words:?}");
    }
    for words in [["-development"], ["--development"], ["--development=true"]] {
        assert!(read(&words).development, "{words:?}");
    }
    assert!(!read(&["-development=false"]).development);
    assert!(!read(&[]).development && !read(&[]).version);
}

#[test]
fn only_the_agent_has_options_with_one_dash() {
    let words = ["tidegate", "diff", "-o", "json", "-version"].map(OsString::from);
    assert_eq!(normalised(words.clone().into_iter()).collect::<Vec<_>>(), words);
}

#[test]
fn defaults_are_those_of_the_agent() {
    assert_eq!(read(&[]).timing(), Timing::default());
}
