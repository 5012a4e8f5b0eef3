//! The pictures of the documentation are drawn from text: `docs/pictures/NAME.txt` becomes `docs/NAME.svg`.
//!
//! The text has boxes and lines of box-drawing characters, arrowheads (`▶ ◀ ▲ ▼`) and words. Its first line is a
//! comment (`# …`) that says what the picture shows, for readers who cannot see it. The result has its own background
//! and a second set of colours, so that it can be read on light and on dark pages.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it pictures::` draws them anew.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use tidegate_core::object::Digest;

use crate::harness::check_recorded;

/// Size of one character of the text, in pixels.
const CELL: (usize, usize) = (8, 18);
/// Free space around the picture, in pixels.
const MARGIN: usize = 12;

/// Colours on light pages, then on dark ones. Boxes within boxes are `b1`.
const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1b2733;text-anchor:middle}\
.t{font-weight:600}.p{fill:#fff}.b0{fill:#eef3f8;stroke:#8aa0b5}.b1{fill:#fff;stroke:#35597d}\
.l{stroke:#35597d;stroke-width:1.5;fill:none}.a{fill:#35597d}\
@media(prefers-color-scheme:dark){text{fill:#e4ebf2}.p{fill:#10171f}.b0{fill:#18222d;stroke:#52677c}\
.b1{fill:#22303e;stroke:#8fb4d8}.l{stroke:#8fb4d8}.a{fill:#8fb4d8}}";

/// A picture as its text has it: characters by row and column.
struct Grid(Vec<Vec<char>>);

/// A rectangle of characters: its corners, and in how many others it is.
struct Frame {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
    depth: usize,
}

/// A direction from the centre of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    Left,
    Right,
}

// === impl Way ===

impl Way {
    /// In which directions a character has a line, if it is part of one.
    fn of(character: char) -> &'static [Way] {
        use Way::{Down, Left, Right, Up};
        match character {
            '─' => &[Left, Right],
            '│' => &[Up, Down],
            '┌' => &[Down, Right],
            '┐' => &[Down, Left],
            '└' => &[Up, Right],
            '┘' => &[Up, Left],
            '├' => &[Up, Down, Right],
            '┤' => &[Up, Down, Left],
            '┬' => &[Left, Right, Down],
            '┴' => &[Left, Right, Up],
            '┼' => &[Left, Right, Up, Down],
            '▶' => &[Left],
            '◀' => &[Right],
            '▲' => &[Down],
            '▼' => &[Up],
            _ => &[],
        }
    }
}

// === impl Grid ===

impl Grid {
    fn new(text: &str) -> Grid {
        Grid(text.lines().map(|line| line.chars().collect()).collect())
    }

    fn at(&self, row: usize, column: usize) -> char {
        self.0.get(row).and_then(|line| line.get(column)).copied().unwrap_or(' ')
    }

    /// All rectangles, the outer ones first.
    fn frames(&self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for (top, line) in self.0.iter().enumerate() {
            for left in (0..line.len()).filter(|column| line[*column] == '┌') {
                if let Some(frame) = self.frame(top, left) {
                    let is_around = |outer: &&Frame| {
                        outer.top < top && frame.bottom < outer.bottom && outer.left < left && frame.right < outer.right
                    };
                    let depth = frames.iter().filter(is_around).count();
                    frames.push(Frame { depth, ..frame });
                }
            }
        }
        frames
    }

    /// The rectangle with this corner at its top and left, if the four sides are closed.
    fn frame(&self, top: usize, left: usize) -> Option<Frame> {
        let is_side = |row, column| !matches!(self.at(row, column), ' ' | '┌' | '┐' | '└' | '┘');
        let right = (left + 1..).find(|column| !is_side(top, *column))?;
        let bottom = (top + 1..).find(|row| !is_side(*row, left))?;
        let is_closed = self.at(top, right) == '┐'
            && self.at(bottom, left) == '└'
            && self.at(bottom, right) == '┘'
            && (top + 1..bottom).all(|row| is_side(row, right))
            && (left + 1..right).all(|column| is_side(bottom, column));
        is_closed.then_some(Frame { top, left, bottom, right, depth: 0 })
    }

    /// The words of each row, with their first column and length: two spaces or a line part them.
    fn words(&self) -> Vec<(usize, usize, String)> {
        let mut words = Vec::new();
        for (row, line) in self.0.iter().enumerate() {
            let is_word = |column: usize| {
                let is_text = |column| self.at(row, column) != ' ' && Way::of(self.at(row, column)).is_empty();
                is_text(column)
                    || self.at(row, column) == ' ' && 0 < column && is_text(column - 1) && is_text(column + 1)
            };
            let mut column = 0;
            while column < line.len() {
                let end = (column..).find(|column| !is_word(*column)).unwrap_or(column);
                if column < end {
                    words.push((row, column, line[column..end].iter().collect()));
                }
                column = end.max(column + 1);
            }
        }
        words
    }
}

// === impl Frame ===

impl Frame {
    /// Whether the line from a character in this direction is a side of the frame.
    fn covers(&self, row: usize, column: usize, way: Way) -> bool {
        let (rows, columns) = (self.top..=self.bottom, self.left..=self.right);
        match way {
            Way::Up => [self.left, self.right].contains(&column) && self.top < row && rows.contains(&row),
            Way::Down => [self.left, self.right].contains(&column) && row < self.bottom && rows.contains(&row),
            Way::Left => [self.top, self.bottom].contains(&row) && self.left < column && columns.contains(&column),
            Way::Right => [self.top, self.bottom].contains(&row) && column < self.right && columns.contains(&column),
        }
    }
}

/// The centre of a character, in pixels.
fn centre(row: usize, column: usize) -> (usize, usize) {
    (MARGIN + column * CELL.0 + CELL.0 / 2, MARGIN + row * CELL.1 + CELL.1 / 2)
}

/// Lines of one direction: half characters by row (or column), joined where they touch.
#[derive(Default)]
struct Lines(BTreeMap<usize, Vec<usize>>);

// === impl Lines ===

impl Lines {
    fn add(&mut self, across: usize, half: usize) {
        self.0.entry(across).or_default().push(half);
    }

    /// The joined lines: row (or column), first and last half character.
    fn joined(&self) -> Vec<(usize, usize, usize)> {
        let mut joined: Vec<(usize, usize, usize)> = Vec::new();
        for (across, halves) in &self.0 {
            let mut halves = halves.clone();
            halves.sort_unstable();
            for half in halves {
                match joined.last_mut() {
                    Some((other, _, end)) if other == across && *end == half => *end = half + 1,
                    _ => joined.push((*across, half, half + 1)),
                }
            }
        }
        joined
    }
}

/// The picture that a text describes.
fn draw(text: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("a comment, then the picture");
    let title = first.strip_prefix("# ").expect("the first line says what the picture shows");
    let grid = Grid::new(rest.trim_start_matches('\n'));
    let frames = grid.frames();
    let width = 2 * MARGIN + grid.0.iter().map(Vec::len).max().unwrap_or_default() * CELL.0;
    let height = 2 * MARGIN + grid.0.len() * CELL.1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"p\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        escaped(title)
    );
    for frame in &frames {
        let ((x, y), (right, bottom)) = (centre(frame.top, frame.left), centre(frame.bottom, frame.right));
        let (class, width, height) = (frame.depth.min(1), right - x, bottom - y);
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<rect class=\"b{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
        );
    }
    lines(&mut svg, &grid, &frames);
    let words = grid.words();
    for (row, column, word) in &words {
        let is_in =
            |frame: &&Frame| (frame.top..frame.bottom).contains(row) && (frame.left..frame.right).contains(column);
        let inner = frames.iter().filter(is_in).max_by_key(|frame| frame.depth);
        let is_alone = |frame: &&Frame| {
            let columns = frame.left + 1..frame.right;
            let others = words.iter().filter(|other| other.0 == *row && columns.contains(&other.1)).count();
            others == 1 && columns.clone().all(|column| Way::of(grid.at(*row, column)).is_empty())
        };
        let is_title = inner.is_some_and(|frame| frame.top + 1 == *row);
        // A word alone in its row is in the middle of its box, whatever the spaces around it.
        let x = match inner.filter(is_alone) {
            Some(frame) => usize::midpoint(centre(*row, frame.left).0, centre(*row, frame.right).0),
            None => MARGIN + (2 * column + word.chars().count()) * CELL.0 / 2,
        };
        let (y, class) = (centre(*row, *column).1 + 5, if is_title { " class=\"t\"" } else { "" });
        let _ = writeln!(svg, "<text{class} x=\"{x}\" y=\"{y}\">{}</text>", escaped(word));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Lines and arrowheads. The sides of frames are drawn with the frames.
fn lines(svg: &mut String, grid: &Grid, frames: &[Frame]) {
    let (mut across, mut down) = (Lines::default(), Lines::default());
    let mut heads = String::new();
    for (row, line) in grid.0.iter().enumerate() {
        for (column, character) in line.iter().enumerate() {
            for way in Way::of(*character) {
                if frames.iter().any(|frame| frame.covers(row, column, *way)) {
                    continue;
                }
                match way {
                    Way::Left => across.add(row, 2 * column),
                    Way::Right => across.add(row, 2 * column + 1),
                    Way::Up => down.add(column, 2 * row),
                    Way::Down => down.add(column, 2 * row + 1),
                }
            }
            let (x, y) = centre(row, column);
            let corners = match character {
                '▶' => [(x - 8, y - 5), (x, y), (x - 8, y + 5)],
                '◀' => [(x + 8, y - 5), (x, y), (x + 8, y + 5)],
                '▲' => [(x - 5, y + 8), (x, y), (x + 5, y + 8)],
                '▼' => [(x - 5, y - 8), (x, y), (x + 5, y - 8)],
                _ => continue,
            };
            let corners = corners.map(|(x, y)| format!("{x},{y}")).join(" ");
            let _ = writeln!(heads, "<polygon class=\"a\" points=\"{corners}\"/>");
        }
    }
    for (row, from, to) in across.joined() {
        let (y, from, to) = (centre(row, 0).1, MARGIN + from * CELL.0 / 2, MARGIN + to * CELL.0 / 2);
        let _ = writeln!(svg, "<path class=\"l\" d=\"M{from} {y}H{to}\"/>");
    }
    for (column, from, to) in down.joined() {
        let (x, from, to) = (centre(0, column).0, MARGIN + from * CELL.1 / 2, MARGIN + to * CELL.1 / 2);
        let _ = writeln!(svg, "<path class=\"l\" d=\"M{x} {from}V{to}\"/>");
    }
    svg.push_str(&heads);
}

/// A text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn pictures_are_as_their_texts_describe_them() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut drawn = 0;
    for entry in fs::read_dir(docs.join("pictures")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a text");
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8");
        check_recorded(&docs.join(format!("{name}.svg")), &draw(&text));
        drawn += 1;
    }
    assert_eq!(drawn, 2, "the architecture and the watch path");
}

#[test]
fn lines_frames_and_words_are_told_apart() {
    let svg = draw("# Two boxes & a line\n\n┌─────┐     ┌─────┐\n│ one ├─ x ─▶ two │\n└─────┘     └─────┘\n");
    assert!(svg.contains("<title>Two boxes &amp; a line</title>"), "{svg}");
    assert_eq!(svg.matches("<rect class=\"b0\"").count(), 2, "{svg}");
    let words: Vec<&str> = svg.split("</text>").filter_map(|part| part.rsplit_once('>')).map(|part| part.1).collect();
    assert_eq!(words[..3], ["one", "x", "two"], "{svg}");
    // The line ends before the word and at the border of the second box, and no side of a box is drawn twice.
    assert_eq!(svg.matches("<path").count(), 2, "{svg}");
    assert_eq!(svg.matches("<polygon").count(), 1, "{svg}");
}

/// The text of which docs/pull-request-comment.png is a picture, drawn by a browser.
const COMMENT_DIGEST: &str = "bd44aa6334348867381f06bd38d798231464d9b90070a5e3710999c2fecddcf5";

#[test]
fn the_picture_of_a_comment_shows_what_the_program_writes() {
    let comment = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/diff/bump.md")).unwrap();
    let digest = Digest::of_bytes(&comment).to_string();
    assert_eq!(
        digest, COMMENT_DIGEST,
        "tests/it/diff/bump.md has changed: draw docs/pull-request-comment.png again, and record the digest"
    );
}
