use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs1KeyDer;

use super::*;

const KEY: &str = include_str!("../../testdata/ssh/rsa_pkcs1");

fn settings() -> AppSettings {
    AppSettings {
        id: "12".to_owned(),
        installation: Some("345".to_owned()),
        owner: None,
        private_key: KEY.to_owned(),
        base_url: None,
    }
}

fn github() -> Url {
    "https://github.com/team/a.git".parse().unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn settings_that_cannot_be_used_are_named_and_no_secret_is_shown() {
    use AppSettingsProblem as Problem;
    let refused = |settings: AppSettings| GitHubApp::new(settings, &github()).err();
    assert_eq!(refused(settings()), None);
    assert_eq!(refused(AppSettings { id: "Iv23liAbC.x".to_owned(), ..settings() }), None);
    let text = |text: &str| Some(text.to_owned());
    let pem = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/ssh");
        std::fs::read_to_string(folder.join(name)).unwrap()
    };
    for (settings, expected) in [
        (AppSettings { id: String::new(), ..settings() }, Problem::Id),
        (AppSettings { id: "1/2".to_owned(), ..settings() }, Problem::Id),
        (AppSettings { installation: None, ..settings() }, Problem::NoInstallation),
        (AppSettings { owner: text("team"), ..settings() }, Problem::TwoInstallations),
        (AppSettings { installation: text("1x"), ..settings() }, Problem::InstallationId),
        (AppSettings { installation: text(""), ..settings() }, Problem::InstallationId),
        (AppSettings { installation: None, owner: text("../team"), ..settings() }, Problem::Owner),
        (AppSettings { installation: None, owner: text(""), ..settings() }, Problem::Owner),
        (AppSettings { private_key: "s3cret".to_owned(), ..settings() }, Problem::Key),
        (AppSettings { private_key: KEY[..200].to_owned(), ..settings() }, Problem::Key),
        (AppSettings { private_key: pem("rsa_pkcs8_encrypted"), ..settings() }, Problem::EncryptedKey),
        (AppSettings { private_key: pem("rsa_pkcs1_encrypted"), ..settings() }, Problem::EncryptedKey),
        (AppSettings { private_key: pem("ecdsa_pkcs8"), ..settings() }, Problem::NotRsa),
        (AppSettings { base_url: text("http://github.example.com/api/v3"), ..settings() }, Problem::BaseUrl),
        (AppSettings { base_url: text("https://anna:s3cret@github.example.com"), ..settings() }, Problem::BaseUrl),
        (AppSettings { base_url: text("github.example.com"), ..settings() }, Problem::BaseUrl),
    ] {
        assert_eq!(refused(settings), Some(expected), "{}", expected.text());
        assert!(!expected.text().contains("s3cret"));
    }
    let shown = format!("{:?} {:?}", settings(), GitHubApp::new(settings(), &github()).unwrap());
    assert_eq!(shown, "AppSettings(12) GitHubApp(12)");
}

#[test]
fn the_api_is_that_of_github_com_only_for_its_repositories() {
    let api = |base_url: Option<&str>, repository: &str| {
        let settings = AppSettings { base_url: base_url.map(str::to_owned), ..settings() };
        GitHubApp::new(settings, &repository.parse().unwrap()).map(|app| app.0.api.to_string())
    };
    assert_eq!(api(None, "https://GitHub.com/a/b"), Ok("https://api.github.com".to_owned()));
    assert_eq!(api(None, "https://github.com.example.com/a/b"), Err(AppSettingsProblem::NoBaseUrl));
    for (base_url, expected) in [
        ("https://github.example.com", "https://github.example.com/api/v3"),
        ("https://github.example.com/", "https://github.example.com/api/v3"),
        ("https://github.example.com:8443/api/v3/\n", "https://github.example.com:8443/api/v3"),
        ("https://api.octo.ghe.com", "https://api.octo.ghe.com"),
    ] {
        assert_eq!(api(Some(base_url), "https://github.example.com/a/b"), Ok(expected.to_owned()));
    }
}

#[test]
fn a_jwt_lasts_from_a_minute_ago_for_ten_minutes_and_its_signature_is_that_of_the_key() {
    let app = GitHubApp::new(settings(), &github()).unwrap();
    let jwt = app.jwt(time("2026-11-25T12:00:00Z")).unwrap();
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let part =
        |text: &str| -> serde_json::Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap() };
    let (header, claims) = signed.split_once('.').unwrap();
    assert_eq!(part(header), json!({"alg": "RS256", "typ": "JWT"}));
    assert_eq!(part(claims), json!({"iat": 1_795_607_940, "exp": 1_795_608_540, "iss": "12"}));
    let der = PrivatePkcs1KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
}

#[test]
fn a_token_is_kept_until_a_minute_before_its_end_and_an_hour_at_most() {
    let now = time("2026-11-25T12:00:00Z");
    let until = |end: &str| {
        let answer = format!(r#"{{"token": "ghs_a", "expires_at": "{end}", "permissions": {{}}}}"#);
        Token::parse(answer.as_bytes(), now).map(|token| (token.text, token.until.to_string()))
    };
    let kept = |until: &str| Some(("ghs_a".to_owned(), until.to_owned()));
    assert_eq!(until("2026-11-25T12:30:00Z"), kept("2026-11-25T12:29:00Z"));
    assert_eq!(until("2030-11-25T12:30:00Z"), kept("2026-11-25T12:59:00Z"));
    assert_eq!(until("2026-11-25T12:00:30Z"), kept("2026-11-25T11:59:30Z"));
    assert_eq!(until("soon"), None);
    for token in ["", "a b", "a\\n", "ä", &"a".repeat(TOKEN_LEN_MAX + 1)] {
        let answer = format!(r#"{{"token": "{token}", "expires_at": "2026-11-25T12:30:00Z"}}"#);
        assert!(Token::parse(answer.as_bytes(), now).is_none(), "{token}");
    }
    let app = GitHubApp::new(settings(), &github()).unwrap();
    assert_eq!(app.kept(now), None);
    app.keep(Token { text: "ghs_a".to_owned(), until: time("2026-11-25T12:29:00Z") });
    assert_eq!(app.kept(time("2026-11-25T12:28:59Z")), Some("ghs_a".to_owned()));
    assert_eq!(app.clone().kept(now), Some("ghs_a".to_owned()), "clones share it");
    assert_eq!(app.kept(time("2026-11-25T12:29:00Z")), None);
    assert_eq!(GitHubApp::new(settings(), &github()).unwrap().kept(now), None, "the Secret was read again");
}
