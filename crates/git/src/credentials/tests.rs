use super::*;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn openssh(cipher: &str) -> String {
    let mut bytes = b"openssh-key-v1\0".to_vec();
    bytes.extend(u32::try_from(cipher.len()).unwrap().to_be_bytes());
    bytes.extend(cipher.as_bytes());
    bytes.extend([7; 100]);
    let body = STANDARD.encode(bytes);
    let (first, second) = body.split_at(70);
    format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{first}\n{second}\n-----END OPENSSH PRIVATE KEY-----\n"
    )
}

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

#[test]
fn secrets_that_can_be_used() {
    let key = openssh("none");
    let rsa = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let pkcs8 = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (scheme, pairs) in [
        (Scheme::Https, vec![]),
        (
            Scheme::Https,
            vec![("username", "me"), ("password", "pass:word")],
        ),
        (
            Scheme::Https,
            vec![
                ("username", "me"),
                ("password", "p"),
                ("ca.crt", CERTIFICATE),
            ],
        ),
        (Scheme::Https, vec![("ca.crt", CERTIFICATE), ("note", "x")]),
        (Scheme::Http, vec![("username", "me"), ("password", "p")]),
        (
            Scheme::Ssh,
            vec![
                ("identity", key.as_str()),
                ("known_hosts", "h ssh-ed25519 AAAA"),
            ],
        ),
        (
            Scheme::Ssh,
            vec![
                ("identity", rsa),
                ("known_hosts", "x"),
                ("identity.pub", "x"),
            ],
        ),
        (Scheme::Ssh, vec![("identity", pkcs8), ("known_hosts", "x")]),
    ] {
        let read = Credentials::from_data(scheme, &data(&pairs));
        assert!(read.is_ok(), "{scheme:?} {pairs:?}: {read:?}");
    }
}

#[test]
fn secrets_that_cannot() {
    let encrypted = openssh("aes256-ctr");
    let damaged = openssh("none").replacen("b3Bl", "!3Bl", 1);
    for (scheme, pairs, words) in [
        (Scheme::Https, vec![("username", "me")], "no key 'password'"),
        (Scheme::Https, vec![("password", "p")], "no key 'username'"),
        (
            Scheme::Https,
            vec![("username", "a:b"), ("password", "p")],
            "':'",
        ),
        (
            Scheme::Https,
            vec![("username", "me"), ("password", "hush\n")],
            "newline",
        ),
        (
            Scheme::Https,
            vec![("username", "me"), ("password", "hu\0sh")],
            "control",
        ),
        (
            Scheme::Https,
            vec![("username", "me"), ("password", "")],
            "empty",
        ),
        (
            Scheme::Https,
            vec![("ca.crt", "hush")],
            "no PEM certificate",
        ),
        (
            Scheme::Https,
            vec![(
                "ca.crt",
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
            )],
            "damaged",
        ),
        (
            Scheme::Https,
            vec![("identity", "hush"), ("known_hosts", "x")],
            "no key that https:// uses",
        ),
        (Scheme::Https, vec![("bearerToken", "hush")], "'password'"),
        (
            Scheme::Https,
            vec![("tls.key", "hush")],
            "client certificates",
        ),
        (
            Scheme::Http,
            vec![("ca.crt", CERTIFICATE)],
            "no certificates",
        ),
        (Scheme::Ssh, vec![], "no key 'identity'"),
        (
            Scheme::Ssh,
            vec![("identity", "hush")],
            "no key 'known_hosts'",
        ),
        (
            Scheme::Ssh,
            vec![("known_hosts", "hush")],
            "no key 'identity'",
        ),
        (
            Scheme::Ssh,
            vec![("username", "me"), ("password", "hush")],
            "no key 'identity'",
        ),
        (
            Scheme::Ssh,
            vec![("identity", "hush"), ("known_hosts", "x")],
            "PEM",
        ),
        (
            Scheme::Ssh,
            vec![("identity", CERTIFICATE), ("known_hosts", "x")],
            "not a private key",
        ),
        (
            Scheme::Ssh,
            vec![("identity", encrypted.as_str()), ("known_hosts", "x")],
            "passphrase",
        ),
        (
            Scheme::Ssh,
            vec![("identity", damaged.as_str()), ("known_hosts", "x")],
            "damaged",
        ),
        (
            Scheme::Ssh,
            vec![
                ("identity", "-----BEGIN ENCRYPTED PRIVATE KEY-----"),
                ("known_hosts", "x"),
            ],
            "passphrase",
        ),
        (
            Scheme::Ssh,
            vec![
                (
                    "identity",
                    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
                ),
                ("known_hosts", "x"),
            ],
            "passphrase",
        ),
    ] {
        let error = Credentials::from_data(scheme, &data(&pairs))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{pairs:?}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let binary = BTreeMap::from([("identity".to_owned(), vec![0xff, 0xfe])]);
    let error = Credentials::from_data(Scheme::Ssh, &binary).unwrap_err();
    assert_eq!(error, CredentialsError::Value("identity", "it is not text"));
    let large = BTreeMap::from([("identity".to_owned(), vec![b'a'; FILE_LIMIT + 1])]);
    let error = Credentials::from_data(Scheme::Ssh, &large).unwrap_err();
    assert_eq!(error, CredentialsError::Value("identity", "it is too long"));
}

#[test]
fn a_key_is_kept_as_ssh_reads_it() {
    let key = openssh("none");
    for form in [
        key.clone(),
        key.trim_end().to_owned(),
        key.replace('\n', "\r\n"),
    ] {
        let pairs = data(&[("identity", form.as_str()), ("known_hosts", "x")]);
        let read = Credentials::from_data(Scheme::Ssh, &pairs).unwrap();
        let Credentials::Ssh { identity, .. } = read else {
            panic!()
        };
        assert_eq!(identity, key);
    }
}

#[test]
fn debug_shows_nothing() {
    let https = data(&[
        ("username", "canary-u"),
        ("password", "canary-p"),
        ("ca.crt", CERTIFICATE),
    ]);
    let https = Credentials::from_data(Scheme::Https, &https).unwrap();
    assert_eq!(
        format!("{https:?}"),
        "Http { login: true, authorities: true }"
    );
    let Credentials::Http {
        login: Some(login), ..
    } = https
    else {
        panic!()
    };
    assert_eq!(format!("{login:?}"), "Login");
    let key = openssh("none");
    let ssh = data(&[("identity", key.as_str()), ("known_hosts", "canary")]);
    assert_eq!(
        format!("{:?}", Credentials::from_data(Scheme::Ssh, &ssh).unwrap()),
        "Ssh"
    );
}

#[test]
fn secrets_are_masked_in_every_form() {
    let https = |username: &str, password: &str| {
        let pairs = data(&[("username", username), ("password", password)]);
        Credentials::from_data(Scheme::Https, &pairs).unwrap()
    };
    let header = STANDARD.encode("me:s3/cr et");
    for (credentials, text, masked) in [
        (
            https("me", "s3/cr et"),
            "me said s3/cr et, s3/cr et!",
            "me said ***, ***!",
        ),
        (
            https("me", "s3/cr et"),
            "https://me:s3%2Fcr%20et@h",
            "https://me:***@h",
        ),
        (https("me", "s3/cr et"), header.as_str(), "***"),
        (
            https("ghp_0123456789abcdefghij", "x-oauth"),
            "ghp_0123456789abcdefghij",
            "***",
        ),
        (https("git", "x-oauth"), "git said", "git said"),
        (https("me", "*"), "a*b", "a*b"),
    ] {
        assert_eq!(mask(text, &credentials), masked);
    }
    let key = openssh("none");
    let pairs = data(&[("identity", key.as_str()), ("known_hosts", "x")]);
    let ssh = Credentials::from_data(Scheme::Ssh, &pairs).unwrap();
    let masked = mask(&format!("load: {key}"), &ssh);
    assert_eq!(
        masked,
        "load: -----BEGIN OPENSSH PRIVATE KEY-----\n***\n***\n-----END OPENSSH PRIVATE KEY-----\n"
    );
    let none = Credentials::from_data(Scheme::Https, &BTreeMap::new()).unwrap();
    assert_eq!(mask("text", &none), "text");
}
