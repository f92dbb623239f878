use super::*;

fn image(name: &str, text: &str) -> Result<Image> {
    Image::validate(name, Path::new("/nowhere"), toml::from_str(text)?)
}

#[test]
fn a_full_declaration_is_accepted() {
    let image = image(
        "tool-box2",
        r#"
        tag = "1.0_a"
        addition = "flux"
        packages = ["libstdc++6", "git"]
        files = [
            { from = "part:coredns/coredns", to = "/coredns" },
            { from = "cargo:csi-btrfs", to = "/usr/bin/csi", mode = 0o4755 },
            { from = "./etc/conf", to = "/etc/conf" },
        ]
        links = { "/bin/sh" = "busybox" }
        users = [{ name = "git", id = 1000 }]
        script = "setup.sh"
        entrypoint = ["/bin/sh"]
        env = { HOME = "/tmp" }
        user = 65532
        workdir = "/tmp"
        "#,
    )
    .unwrap();
    assert_eq!(image.reference(), "testbed.local/tool-box2:1.0_a");
    assert_eq!(image.addition(), Some(Addition::Flux));
    assert_eq!(
        image.sources().collect::<Vec<_>>(),
        ["part:coredns/coredns", "cargo:csi-btrfs"]
    );
    let modes: Vec<_> = image.files.values().map(|file| file.mode).collect();
    assert_eq!(modes, [0o755, 0o644, 0o4755]);
    let ids: Vec<_> = image.users.iter().map(|user| user.id).collect();
    assert_eq!(ids, [0, 1000, 65532, 65534]);
    assert!(image.runtime.env.contains_key("PATH"));
}

#[test]
fn wrong_declarations_are_refused_with_the_reason() {
    const GOOD: &str = "tag = '1'\ncmd = ['x']\n";
    for (name, text, reason) in [
        ("", GOOD, "words joined"),
        ("a--b", GOOD, "words joined"),
        ("../x", GOOD, "words joined"),
        ("x", "cmd = ['x']", "missing field `tag`"),
        ("x", "tag = 'latest'\ncmd = ['x']", "latest"),
        ("x", "tag = '1-2'\ncmd = ['x']", "tag"),
        ("x", "tag = '1'", "nothing to run"),
    ] {
        assert_refused(name, text, reason);
    }
    for (text, reason) in [
        ("expose = 1", "unknown field"),
        ("packages = ['--hook']", "package"),
        ("files = [{from='./a',to='a'}]", "absolute"),
        ("files = [{from='./a',to='/'}]", "component"),
        ("files = [{from='./a',to='/a/../b'}]", "component"),
        ("files = [{from='./a',to='/dev/a'}]", "runtime fills"),
        ("files = [{from='./../a',to='/a'}]", "below"),
        ("files = [{from='/etc/a',to='/a'}]", "none of"),
        ("files = [{from='part:a',to='/a'}]", "part:PART"),
        ("files = [{from='part:a/..',to='/a'}]", "no binary"),
        ("files = [{from='cargo:',to='/a'}]", "no binary"),
        ("files = [{from='./a',to='/a',mode=0o10000}]", "0o7777"),
        (
            "files = [{from='./a',to='/a'},{from='./b',to='/a'}]",
            "twice",
        ),
        (
            "files = [{from='./a',to='/a'}]\nlinks = {'/a'='b'}",
            "as link",
        ),
        ("links = {'/a'=''}", "target"),
        ("users = [{name='root',id=5}]", "already"),
        ("users = [{name='a',id=0}]", "already"),
        ("users = [{name='a:b',id=7}]", "words joined"),
        ("users = [{name='a',id=7,home='/a:b'}]", "home"),
        ("script = '../setup.sh'", "script"),
        ("script = '/setup.sh'", "script"),
        ("env = {'A=B'='c'}", "env"),
        ("user = 'app'", "invalid type"),
        ("workdir = 'tmp'", "workdir"),
        ("addition = 'fluxx'", "no addition"),
    ] {
        assert_refused("x", &format!("{GOOD}{text}"), reason);
    }
}

fn assert_refused(name: &str, text: &str, reason: &str) {
    let error = match image(name, text) {
        Ok(image) => panic!("accepted {name:?} {text:?} as {image:?}"),
        Err(error) => format!("{error:#}"),
    };
    assert!(
        error.contains(reason),
        "{text:?}: {error:?} does not say {reason:?}"
    );
}

#[test]
fn the_images_of_this_repository_are_well_declared() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    let images = Image::load_all(&root).unwrap();
    let names: Vec<_> = images.iter().map(Image::name).collect();
    assert!(
        names.contains(&"pause") && names.contains(&"coredns"),
        "{names:?}"
    );
}

#[test]
fn files_beside_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("x");
    std::fs::create_dir(&dir).unwrap();
    let declaration = "tag = '1'\ncmd = ['/a']\nfiles = [{from='./a',to='/a'}]";
    std::fs::write(dir.join(DECLARATION), declaration).unwrap();
    let error = format!("{:#}", Image::load(&dir).unwrap_err());
    assert!(
        error.contains("image x") && error.contains("file a"),
        "{error}"
    );
    std::fs::write(dir.join("a"), "a").unwrap();
    assert_eq!(Image::load(&dir).unwrap().name(), "x");
}
