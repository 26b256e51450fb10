use std::path::PathBuf;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::signature::KeyPair;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prombus_proto::Topic;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::test_issuer::{Issuer, RSA, SECRET, pem};
use super::*;
use crate::auth::action::Action;
use crate::auth::scope::Scopes;

const NOW: Timestamp = Timestamp(1_000_000_000);
const NOW_SECONDS: u64 = 1_000_000;

fn with(mut object: Value, field: &str, value: &str) -> Value {
    object[field] = value.into();
    object
}

fn file(content: impl AsRef<[u8]>) -> (NamedTempFile, Option<PathBuf>) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    let path = file.path().to_owned();
    (file, Some(path))
}

/// Most tests are about other claims than the expiry.
fn no_key() -> JwtSettings {
    JwtSettings {
        secret: None,
        public_key_file: None,
        jwks_file: None,
        issuer: None,
        audience: None,
        require_exp: false,
    }
}

fn by_secret() -> JwtSettings {
    JwtSettings { secret: Some(SECRET.into()), ..no_key() }
}

fn verifier_by_secret() -> JwtVerifier {
    JwtVerifier::new(by_secret()).unwrap()
}

fn verifier_by_pem(pem: &str) -> Result<JwtVerifier, AuthSetupError> {
    let (_file, public_key_file) = file(pem);
    JwtVerifier::new(JwtSettings { public_key_file, ..no_key() })
}

fn verifier_by_jwks(keys: &[Value]) -> Result<JwtVerifier, AuthSetupError> {
    let (_file, jwks_file) = file(json!({ "keys": keys }).to_string());
    JwtVerifier::new(JwtSettings { jwks_file, ..no_key() })
}

fn check(verifier: &JwtVerifier, token: &str) -> Result<(), BadToken> {
    verifier.check(token, NOW).map(drop)
}

#[test]
fn accepts_tokens_of_each_algorithm_with_their_key_only() {
    let (first, second) = (Issuer::ed25519(), Issuer::ed25519());
    let p256 = Issuer::p256();
    let verifiers = [
        ("HS256", verifier_by_secret()),
        ("RS256", verifier_by_pem(&RSA.public_pem()).unwrap()),
        ("ES256", verifier_by_pem(&p256.public_pem()).unwrap()),
        ("EdDSA", verifier_by_pem(&first.public_pem()).unwrap()),
    ];
    for issuer in [&Issuer::shared_secret(), &*RSA, &p256, &first] {
        for (algorithm, verifier) in &verifiers {
            let expected =
                if *algorithm == issuer.alg() { Ok(()) } else { Err(BadToken::UnknownKey) };
            assert_eq!(check(verifier, &issuer.token(&json!({}))), expected, "{algorithm}");
        }
    }
    let strangers = [Issuer::Hs256(b"another".to_vec()), Issuer::p256(), second];
    for (stranger, verifier) in strangers.iter().zip([0, 2, 3].map(|index| &verifiers[index].1)) {
        let token = stranger.token(&json!({}));
        assert_eq!(check(verifier, &token), Err(BadToken::InvalidSignature));
    }
}

#[test]
fn grants_what_the_claims_say() {
    let claims = json!({
        "sub": "sensor-7", "exp": NOW_SECONDS + 60, "scope": "openid publish:heartbeat.* admin",
    });
    let grant = verifier_by_secret().check(&Issuer::shared_secret().token(&claims), NOW).unwrap();
    assert_eq!((grant.name(), grant.identity.kind()), (Some("sensor-7"), "jwt"));
    assert_eq!(grant.expires_at, Some(NOW.plus_ms(60_000)));
    assert_eq!(grant.scopes, Scopes::new(&"publish:heartbeat.* admin".into()).unwrap());
}

#[test]
fn scopes_are_a_string_or_a_list_but_not_both() {
    let topic = Topic::new("a.b").unwrap();
    let verifier = verifier_by_secret();
    for (claims, expected) in [
        (json!({"scope": "publish:a.*"}), Ok(true)),
        (json!({"scopes": ["publish:a.*"]}), Ok(true)),
        (json!({"scopes": ["!publish:a.*", "publish:**"]}), Ok(false)),
        (json!({"scopes": ["publish:**", "!publish:a.*"]}), Ok(true)),
        (json!({"scopes": []}), Ok(false)),
        (json!({}), Ok(false)),
        (json!({"scope": "publish:a.*", "scopes": []}), Err(BadToken::BadScopes)),
        (json!({"scope": "publish:** !publish:A"}), Err(BadToken::BadScopes)),
        (json!({"scope": 1}), Err(BadToken::Malformed)),
        (json!({"scopes": [1]}), Err(BadToken::Malformed)),
    ] {
        let allowed = verifier
            .check(&Issuer::shared_secret().token(&claims), NOW)
            .map(|grant| grant.authorize(Action::Publish(&topic), || NOW).is_ok());
        assert_eq!(allowed, expected, "{claims}");
    }
}

#[test]
fn tolerates_five_seconds_of_clock_difference() {
    let verifier = verifier_by_secret();
    let now = NOW_SECONDS;
    for (claims, expected) in [
        (json!({"exp": now + 1}), Ok(())),
        (json!({"exp": now - 4}), Ok(())),
        (json!({"exp": now as f64 - 4.999}), Ok(())),
        (json!({"exp": now - 5}), Err(BadToken::Expired)),
        (json!({"exp": 0}), Err(BadToken::Expired)),
        (json!({"exp": -1}), Err(BadToken::Expired)),
        (json!({"exp": 1e300}), Ok(())),
        (json!({"exp": (now + 1).to_string()}), Err(BadToken::Malformed)),
        (json!({"nbf": now}), Ok(())),
        (json!({"nbf": now + 5}), Ok(())),
        (json!({"nbf": now as f64 + 5.001}), Err(BadToken::NotYetValid)),
        (json!({"nbf": now + 6}), Err(BadToken::NotYetValid)),
        (json!({"nbf": 1e300}), Err(BadToken::NotYetValid)),
        (json!({"nbf": "soon"}), Err(BadToken::Malformed)),
        (json!({"nbf": now - 10, "exp": now + 10}), Ok(())),
    ] {
        let token = Issuer::shared_secret().token(&claims);
        assert_eq!(check(&verifier, &token), expected, "{claims}");
    }
}

#[test]
fn an_expiry_is_required_unless_configured_otherwise() {
    let strict = JwtVerifier::new(JwtSettings { require_exp: true, ..by_secret() }).unwrap();
    for (claims, expected) in [
        (json!({}), Err(BadToken::NoExpiry)),
        (json!({"exp": null}), Err(BadToken::NoExpiry)),
        (json!({"nbf": NOW_SECONDS}), Err(BadToken::NoExpiry)),
        (json!({"exp": NOW_SECONDS + 60}), Ok(())),
        (json!({"exp": NOW_SECONDS - 60}), Err(BadToken::Expired)),
    ] {
        assert_eq!(check(&strict, &Issuer::shared_secret().token(&claims)), expected, "{claims}");
    }
    let grant =
        verifier_by_secret().check(&Issuer::shared_secret().token(&json!({})), NOW).unwrap();
    assert_eq!((grant.expires_at, grant.name()), (None, None));
}

#[test]
fn a_grant_ends_when_its_token_is_no_longer_accepted() {
    let verifier = verifier_by_secret();
    let token = Issuer::shared_secret().token(&json!({"exp": NOW_SECONDS + 60, "scope": "admin"}));
    let grant = verifier.check(&token, NOW).unwrap();
    for (now, valid) in [(NOW.plus_ms(64_999), true), (NOW.plus_ms(65_000), false)] {
        assert_eq!(verifier.check(&token, now).is_ok(), valid);
        assert_eq!(grant.authorize(Action::Admin, || now).is_ok(), valid);
    }
}

#[test]
fn checks_issuer_and_audience_if_configured() {
    let strict = JwtVerifier::new(JwtSettings {
        issuer: Some("https://issuer.example".into()),
        audience: Some("bus".into()),
        ..by_secret()
    })
    .unwrap();
    let good = json!({"iss": "https://issuer.example", "aud": "bus"});
    for (claims, expected) in [
        (good.clone(), Ok(())),
        (json!({"iss": "https://issuer.example", "aud": ["x", "bus"]}), Ok(())),
        (with(good.clone(), "iss", "https://issuer.example/"), Err(BadToken::WrongIssuer)),
        (json!({"aud": "bus"}), Err(BadToken::WrongIssuer)),
        (with(good, "aud", "Bus"), Err(BadToken::WrongAudience)),
        (json!({"iss": "https://issuer.example", "aud": []}), Err(BadToken::WrongAudience)),
        (json!({"iss": "https://issuer.example"}), Err(BadToken::WrongAudience)),
        (json!({"iss": "https://issuer.example", "aud": 1}), Err(BadToken::Malformed)),
    ] {
        let token = Issuer::shared_secret().token(&claims);
        assert_eq!(check(&strict, &token), expected, "{claims}");
        if expected != Err(BadToken::Malformed) {
            assert_eq!(check(&verifier_by_secret(), &token), Ok(()), "{claims}");
        }
    }
}

#[test]
fn the_token_does_not_choose_its_algorithm() {
    let verifier = verifier_by_pem(&RSA.public_pem()).unwrap();
    let Issuer::Rs256(rsa) = &*RSA else { unreachable!() };
    let der: PublicKeyX509Der<'_> = rsa.public_key().as_der().unwrap();
    // The public key is known to everyone, so it must not pass as a shared secret in any encoding.
    for public in
        [RSA.public_pem().into_bytes(), der.as_ref().to_vec(), rsa.public_key().as_ref().to_vec()]
    {
        let forged = Issuer::Hs256(public).token(&json!({"scope": "admin"}));
        assert_eq!(check(&verifier, &forged), Err(BadToken::UnknownKey));
    }
    // The header must not select another algorithm for the same key either.
    for alg in ["RS384", "RS512", "PS256", "HS256", "EdDSA", "ES256", "ES384"] {
        let token = RSA.sign(&json!({"alg": alg}), &json!({}));
        assert_eq!(check(&verifier, &token), Err(BadToken::UnknownKey), "{alg}");
    }
}

#[test]
fn rejects_a_token_without_a_signature() {
    for verifier in [verifier_by_secret(), verifier_by_pem(&RSA.public_pem()).unwrap()] {
        for alg in ["none", "None", "NONE", "nOnE", ""] {
            let signed = Issuer::shared_secret().sign(&json!({"alg": alg}), &json!({}));
            let (message, _) = signed.rsplit_once('.').unwrap();
            for token in [format!("{message}."), signed.clone()] {
                assert_eq!(check(&verifier, &token), Err(BadToken::Malformed), "{alg}");
            }
        }
    }
    let signed = Issuer::shared_secret().token(&json!({}));
    let (message, _) = signed.rsplit_once('.').unwrap();
    let cut = check(&verifier_by_secret(), &format!("{message}."));
    assert_eq!(cut, Err(BadToken::InvalidSignature));
}

#[test]
fn rejects_a_modified_token() {
    let token = Issuer::shared_secret().token(&json!({"scope": "publish:a"}));
    let verifier = verifier_by_secret();
    let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let more = URL_SAFE_NO_PAD.encode(r#"{"scope":"admin"}"#);
    let changed = check(&verifier, &format!("{header}.{more}.{signature}"));
    assert_eq!(changed, Err(BadToken::InvalidSignature));
    for (text, expected) in [
        ("", BadToken::Unknown),
        ("abc", BadToken::Unknown),
        ("a.b", BadToken::Unknown),
        (&*format!("{token}.x"), BadToken::Unknown),
        ("..", BadToken::Malformed),
        ("a.b.c", BadToken::Malformed),
        (&*format!(" {token}"), BadToken::Malformed),
    ] {
        assert_eq!(check(&verifier, text), Err(expected), "{text}");
    }
}

#[test]
fn rejects_critical_extensions() {
    let header = json!({"alg": "HS256", "crit": ["b64"], "b64": true});
    let token = Issuer::shared_secret().sign(&header, &json!({}));
    assert_eq!(check(&verifier_by_secret(), &token), Err(BadToken::Malformed));
}

#[test]
fn selects_a_jwks_key_by_kid() {
    let (a, b, unnamed) = (Issuer::ed25519(), Issuer::ed25519(), Issuer::ed25519());
    let keys = [with(a.jwk(), "kid", "a"), with(b.jwk(), "kid", "b")];
    let named = verifier_by_jwks(&keys).unwrap();
    for (issuer, kid, expected) in [
        (&a, "a", Ok(())),
        (&b, "b", Ok(())),
        (&a, "b", Err(BadToken::InvalidSignature)),
        (&a, "c", Err(BadToken::UnknownKey)),
        (&*RSA, "a", Err(BadToken::UnknownKey)),
    ] {
        assert_eq!(check(&named, &issuer.token_with_kid(kid)), expected, "{kid}");
    }
    // Without a kid, every key with a matching algorithm is tried.
    for issuer in [&a, &b] {
        assert_eq!(check(&named, &issuer.token(&json!({}))), Ok(()));
    }
    assert_eq!(check(&named, &unnamed.token(&json!({}))), Err(BadToken::InvalidSignature));
    // An unknown kid selects the keys that have none.
    let mixed = verifier_by_jwks(&[with(a.jwk(), "kid", "a"), unnamed.jwk()]).unwrap();
    assert_eq!(check(&mixed, &unnamed.token_with_kid("any")), Ok(()));
    assert_eq!(check(&mixed, &unnamed.token_with_kid("a")), Err(BadToken::InvalidSignature));
}

#[test]
fn selects_a_jwks_key_by_algorithm_without_a_kid() {
    let (ed, p256, secret) = (Issuer::ed25519(), Issuer::p256(), Issuer::shared_secret());
    let verifier = verifier_by_jwks(&[
        with(ed.jwk(), "alg", "EdDSA"),
        with(p256.jwk(), "alg", "ES256"),
        with(RSA.jwk(), "alg", "RS256"),
        with(secret.jwk(), "alg", "HS256"),
    ])
    .unwrap();
    for issuer in [&ed, &p256, &*RSA, &secret] {
        assert_eq!(check(&verifier, &issuer.token(&json!({}))), Ok(()), "{}", issuer.alg());
    }
}

#[test]
fn ignores_keys_for_other_purposes() {
    let ed = Issuer::ed25519();
    let others = [
        with(RSA.jwk(), "use", "enc"),
        with(RSA.jwk(), "alg", "RS512"),
        with(RSA.jwk(), "alg", "RSA-OAEP"),
        json!({"kty": "EC", "crv": "P-384", "x": "", "y": ""}),
        with(Issuer::p256().jwk(), "alg", "ES384"),
        json!({"kty": "OKP", "crv": "X25519", "x": ""}),
        json!({"kty": "AKP", "alg": "ML-DSA-44"}),
    ];
    let error = verifier_by_jwks(&others).unwrap_err().to_string();
    assert!(error.contains("contains no key for RS256, ES256, EdDSA or HS256"), "{error}");
    let verifier = verifier_by_jwks(&[&others[..], &[with(ed.jwk(), "use", "sig")]].concat());
    let verifier = verifier.unwrap();
    assert_eq!(check(&verifier, &ed.token(&json!({}))), Ok(()));
    assert_eq!(check(&verifier, &RSA.token(&json!({}))), Err(BadToken::UnknownKey));
}

#[test]
fn names_the_broken_key_of_a_set() {
    let rsa = RSA.jwk();
    for (key, expected) in [
        (json!({"kty": "RSA", "kid": "k1", "e": "AQAB"}), "kid \"k1\": a field is missing"),
        (with(rsa.clone(), "n", "AQAB"), "keys[0]: an RSA key needs n of 2048 to 8192 bits"),
        (with(rsa.clone(), "e", ""), "keys[0]: an RSA key needs"),
        (with(rsa, "n", "not base64!"), "keys[0]: a field is not base64url"),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}), "x of 32 bytes"),
        (json!({"kty": "oct", "k": ""}), "the secret k is shorter than 32 bytes"),
        (json!({"kty": "oct", "k": "hiddenhi"}), "the secret k is shorter than 32 bytes"),
        (with(Issuer::p256().jwk(), "x", "AQAB"), "a P-256 key needs x and y of 32 bytes"),
        (with(Issuer::p256().jwk(), "x", &"A".repeat(43)), "a point of the curve"),
        (json!({"kty": "EC", "crv": "P-256", "x": "AQAB"}), "a field is missing"),
        (json!({"kty": 7, "k": "hiddenhi"}), "is not a JSON Web Key Set: not {"),
    ] {
        let error = verifier_by_jwks(&[key]).unwrap_err().to_string();
        assert!(error.starts_with("auth.jwt.jwks_file: "), "{error}");
        assert!(error.contains(expected) && !error.contains("hidden"), "{error}");
    }
    let (_file, jwks_file) = file("{");
    let error = JwtVerifier::new(JwtSettings { jwks_file, ..no_key() }).unwrap_err();
    assert!(error.to_string().contains("not JSON, at line 1"), "{error}");
}

#[test]
fn names_the_setting_of_an_unusable_key_file() {
    let Issuer::Rs256(rsa) = &*RSA else { unreachable!() };
    let private: Pkcs8V1Der<'_> = rsa.as_der().unwrap();
    let damaged = RSA.public_pem().replace("MIIB", "MIIC");
    for content in [
        "",
        "not a key",
        &pem("PRIVATE KEY", private.as_ref()),
        &damaged,
        &pem("PUBLIC KEY", b""),
        &Issuer::p384().public_pem(),
    ] {
        let error = verifier_by_pem(content).unwrap_err().to_string();
        assert!(error.starts_with("auth.jwt.public_key_file: "), "{error}");
        assert!(error.contains("contains no usable public key in PEM"), "{error}");
    }
    let nowhere = Some(PathBuf::from("/nowhere/key.pem"));
    for (settings, expected) in [
        (
            JwtSettings { public_key_file: nowhere.clone(), ..no_key() },
            "auth.jwt.public_key_file: cannot read /nowhere/key.pem: ",
        ),
        (
            JwtSettings { jwks_file: nowhere, ..no_key() },
            "auth.jwt.jwks_file: cannot read /nowhere/key.pem: ",
        ),
        (no_key(), "auth.jwt needs a key: set secret, public_key_file or jwks_file"),
        (
            JwtSettings { secret: Some("".into()), ..no_key() },
            "auth.jwt.secret is shorter than 32 bytes",
        ),
    ] {
        let error = JwtVerifier::new(settings).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn accepts_keys_from_several_sources() {
    let ed = Issuer::ed25519();
    let (_pem, public_key_file) = file(RSA.public_pem());
    let (_jwks, jwks_file) = file(json!({"keys": [with(ed.jwk(), "kid", "new")]}).to_string());
    let verifier =
        JwtVerifier::new(JwtSettings { public_key_file, jwks_file, ..by_secret() }).unwrap();
    for token in [
        Issuer::shared_secret().token(&json!({})),
        RSA.token_with_kid("of the PEM file"),
        ed.token_with_kid("new"),
    ] {
        assert_eq!(check(&verifier, &token), Ok(()));
    }
    let forged = Issuer::Hs256(RSA.public_pem().into_bytes()).token(&json!({}));
    assert_eq!(check(&verifier, &forged), Err(BadToken::InvalidSignature));
}

#[test]
fn debug_output_hides_secrets() {
    let shown = format!("{:?} {:?}", verifier_by_secret(), by_secret());
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains("<redacted>") && shown.contains("HS256"), "{shown}");
    let bytes = format!("{:?}", SECRET.as_bytes());
    assert!(!shown.contains(&bytes[1..bytes.len() - 1]), "{shown}");
}
