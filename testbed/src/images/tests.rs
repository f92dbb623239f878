use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;
use tar::{Archive, EntryType};
use tempfile::{TempDir, tempdir};

use super::*;

/// An entry of a layer, as a reader of the archive sees it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    kind: Option<EntryType>,
    mode: u32,
    owner: (u64, u64),
    mtime: u64,
    target: String,
    content: Vec<u8>,
    capability: Option<Vec<u8>>,
}

fn entries(archive: impl Read) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    let mut archive = Archive::new(archive);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut seen = Entry {
            kind: Some(entry.header().entry_type()),
            mode: entry.header().mode().unwrap(),
            owner: (entry.header().uid().unwrap(), entry.header().gid().unwrap()),
            mtime: entry.header().mtime().unwrap(),
            ..Entry::default()
        };
        if let Some(target) = entry.link_name().unwrap() {
            seen.target = target.to_str().unwrap().to_owned();
        }
        if let Some(records) = entry.pax_extensions().unwrap() {
            for record in records {
                let record = record.unwrap();
                if record.key().unwrap() == "SCHILY.xattr.security.capability" {
                    seen.capability = Some(record.value_bytes().to_owned());
                }
            }
        }
        entry.read_to_end(&mut seen.content).unwrap();
        assert!(found.insert(name, seen).is_none());
    }
    found
}

fn json(members: &BTreeMap<String, Entry>, name: &str) -> Value {
    serde_json::from_slice(&members[name].content).unwrap()
}

/// The blob that a descriptor names, after checking that it is what the descriptor says.
fn blob<'a>(members: &'a BTreeMap<String, Entry>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let content = &members[&format!("blobs/sha256/{digest}")].content;
    assert_eq!(format!("{:x}", Sha256::digest(content)), digest);
    assert_eq!(descriptor["size"], content.len());
    content
}

/// Config and layer of an archive, by way of the OCI index; the Docker manifest must agree.
fn open(archive: &Path) -> (Value, BTreeMap<String, Entry>) {
    let members = entries(fs::File::open(archive).unwrap());
    let manifest = json(&members, "index.json")["manifests"][0].clone();
    let manifest: Value = serde_json::from_slice(blob(&members, &manifest)).unwrap();
    let config: Value = serde_json::from_slice(blob(&members, &manifest["config"])).unwrap();
    let layer = blob(&members, &manifest["layers"][0]);
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );
    let path = |descriptor: &Value| {
        descriptor["digest"]
            .as_str()
            .unwrap()
            .replace("sha256:", "blobs/sha256/")
    };
    let docker = json(&members, "manifest.json");
    assert_eq!(docker[0]["Config"], path(&manifest["config"]));
    assert_eq!(docker[0]["Layers"][0], path(&manifest["layers"][0]));
    (config, entries(layer))
}

const SAMPLE: &str = r#"
tag = "1"
files = [
    { from = "part:p/server", to = "/usr/bin/server", mode = 0o4755 },
    { from = "./data.txt", to = "/srv/data.txt" },
]
links = { "/bin/sh" = "/usr/bin/server" }
users = [{ name = "git", id = 1000, home = "/srv" }]
entrypoint = ["/usr/bin/server"]
cmd = ["--port", "80"]
env = { A = "b" }
user = 65532
workdir = "/srv"
"#;

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            dir: tempdir().unwrap(),
        };
        fs::write(bench.binary(), "#!binary").unwrap();
        bench.declare("sample", SAMPLE);
        bench
    }

    fn binary(&self) -> PathBuf {
        self.dir.path().join("server")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn declare(&self, name: &str, text: &str) -> PathBuf {
        let dir = self.dir.path().join("images").join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(DECLARATION), text).unwrap();
        fs::write(dir.join("data.txt"), "data").unwrap();
        dir
    }

    fn image(&self, name: &str) -> Image {
        Image::load(&self.dir.path().join("images").join(name)).unwrap()
    }

    fn key(&self, name: &str) -> String {
        self.image(name).key(&|_| Ok(self.binary())).unwrap()
    }

    fn build(&self, name: &str) -> Result<PathBuf> {
        build(
            &self.image(name),
            &self.out(),
            &|_| Ok(self.binary()),
            &|_| {},
        )
    }

    fn listing(&self) -> Vec<String> {
        let paths = cache::entries(&self.out(), |_| true).unwrap();
        let mut names: Vec<_> = paths.iter().map(|path| name_of(path)).collect();
        names.sort();
        names
    }
}

#[test]
fn an_archive_of_files_has_what_was_declared() {
    let bench = Bench::new();
    let (config, layer) = open(&bench.build("sample").unwrap());
    assert_eq!(
        config["config"]["Entrypoint"],
        serde_json::json!(["/usr/bin/server"])
    );
    assert_eq!(config["config"]["Cmd"], serde_json::json!(["--port", "80"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["WorkingDir"], "/srv");
    assert_eq!(config["config"]["Env"][0], "A=b");
    for entry in layer.values() {
        assert_eq!((entry.owner, entry.mtime), ((0, 0), 0), "{entry:?}");
    }
    let (server, data, shell) = (
        &layer["usr/bin/server"],
        &layer["srv/data.txt"],
        &layer["bin/sh"],
    );
    assert_eq!(
        (server.mode, server.content.as_slice()),
        (0o4755, &b"#!binary"[..])
    );
    assert_eq!((data.mode, data.content.as_slice()), (0o644, &b"data"[..]));
    assert_eq!(
        (shell.kind, shell.target.as_str()),
        (Some(EntryType::Symlink), "/usr/bin/server")
    );
    assert_eq!(layer["tmp/"].mode, 0o1777);
    assert_eq!(layer["usr/bin/"].mode, 0o755);
    let text = |name: &str| String::from_utf8(layer[name].content.clone()).unwrap();
    assert!(text("etc/passwd").contains("\ngit:x:1000:1000:git:/srv:/bin/sh\n"));
    assert!(text("etc/passwd").contains("\napp:x:65532:65532:app:/tmp:/bin/sh\n"));
    assert!(text("etc/group").contains("\nnogroup:x:65534:\n"));
}

#[test]
fn an_image_of_another_registry_is_another_archive() {
    let bench = Bench::new();
    let image = bench.image("sample").in_registry("localhost");
    assert_eq!(image.reference(), "localhost/sample:1");
    assert_ne!(
        image.key(&|_| Ok(bench.binary())).unwrap(),
        bench.key("sample")
    );
}

#[test]
fn the_index_names_the_image_for_containerd_and_others() {
    let bench = Bench::new();
    let members = entries(fs::File::open(bench.build("sample").unwrap()).unwrap());
    let annotations = &json(&members, "index.json")["manifests"][0]["annotations"];
    assert_eq!(
        annotations["io.containerd.image.name"],
        "testbed.local/sample:1"
    );
    assert_eq!(
        annotations["org.opencontainers.image.ref.name"],
        "testbed.local/sample:1"
    );
    assert_eq!(
        json(&members, "manifest.json")[0]["RepoTags"][0],
        "testbed.local/sample:1"
    );
    assert_eq!(
        members["oci-layout"].content,
        br#"{"imageLayoutVersion":"1.0.0"}"#
    );
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let (one, two) = (Bench::new(), Bench::new());
    // Neither the source's mode nor its time may show.
    fs::set_permissions(two.binary(), fs::Permissions::from_mode(0o700)).unwrap();
    let (one, two) = (one.build("sample").unwrap(), two.build("sample").unwrap());
    assert_eq!(one.file_name(), two.file_name());
    assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
}

#[test]
fn the_key_follows_every_input() {
    let bench = Bench::new();
    let dir = bench.dir.path().join("images/sample");
    let changes: [(&str, &dyn Fn()); 4] = [
        ("declaration", &|| {
            fs::write(dir.join(DECLARATION), SAMPLE.replace("0o4755", "0o755")).unwrap();
        }),
        ("file beside", &|| {
            fs::write(dir.join("data.txt"), "other").unwrap()
        }),
        ("new file beside", &|| {
            fs::write(dir.join("new"), "").unwrap()
        }),
        ("binary", &|| fs::write(bench.binary(), "#!other").unwrap()),
    ];
    let mut seen = vec![bench.key("sample")];
    for (what, change) in changes {
        change();
        let key = bench.key("sample");
        assert_eq!(key, bench.key("sample"), "{what}");
        assert!(!seen.contains(&key), "{what}");
        seen.push(key);
    }
}

#[test]
fn a_finished_archive_is_used_and_the_newest_three_are_kept() {
    let bench = Bench::new();
    // Its name begins like an archive of `sample`.
    bench.declare("sample-two", SAMPLE);
    let two = bench.build("sample-two").unwrap();
    let first = bench.build("sample").unwrap();
    let inode = fs::metadata(&first).unwrap().ino();
    let steps = Mutex::new(Vec::new());
    let note = |step: &str| steps.lock().unwrap().push(step.to_owned());
    let again = build(
        &bench.image("sample"),
        &bench.out(),
        &|_| Ok(bench.binary()),
        &note,
    )
    .unwrap();
    assert_eq!(
        (&again, fs::metadata(&again).unwrap().ino()),
        (&first, inode)
    );
    assert_eq!(steps.into_inner().unwrap(), Vec::<String>::new());

    fs::create_dir_all(bench.out().join(".work-killed/root")).unwrap();
    fs::write(bench.out().join("sample-notes.tar"), "not ours").unwrap();
    let mut names = vec![name_of(&two), "sample-notes.tar".to_owned()];
    for (number, made) in (1..).zip(["#!2", "#!3", "#!4"]) {
        // Times of their own: a build is faster than the clock of some file systems.
        let newest = fs::File::open(bench.build("sample").unwrap()).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number);
        newest.set_modified(time).unwrap();
        fs::write(bench.binary(), made).unwrap();
        names.push(name_of(&bench.build("sample").unwrap()));
    }
    names.sort();
    assert_eq!(bench.listing(), names, "the first is not among them");
}

#[test]
fn a_failed_build_leaves_nothing_and_says_where_it_failed() {
    let bench = Bench::new();
    // `/a` is a file and a folder.
    bench.declare(
        "broken",
        "tag = '1'\ncmd = ['/a']\nfiles = [{from='./data.txt',to='/a'},{from='./data.txt',to='/a/b'}]",
    );
    let error = format!("{:#}", bench.build("broken").unwrap_err());
    assert!(error.contains("image broken: build: file /a/b"), "{error}");
    assert_eq!(bench.listing(), Vec::<String>::new());

    let unknown = |source: &str| bail!("{source} was not built");
    let error = build(&bench.image("sample"), &bench.out(), &unknown, &|_| {}).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("image sample") && error.contains("part:p/server was not"),
        "{error}"
    );
}

#[test]
fn archive_names_are_taken_apart_from_the_right() {
    for (name, image) in [
        ("redis-7.0-0123456789ab.tar", Some("redis")),
        ("redis-two-7.0-0123456789ab.tar", Some("redis-two")),
        ("redis-7.0-0123456789a.tar", None),
        ("redis-7.0-0123456789xy.tar", None),
        ("redis-0123456789ab.tar", None),
        ("-7.0-0123456789ab.tar", None),
        ("redis-7.0-0123456789ab.tar.gz", None),
    ] {
        assert_eq!(image_of_archive(name), image, "{name}");
    }
}

#[test]
fn a_layer_keeps_links_and_long_names_and_leaves_out_what_a_runtime_fills() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("root");
    let long = format!("{}/{}", "d".repeat(90), "n".repeat(200));
    for folder in ["proc/1", "dev", "sys", "srv/proc", &"d".repeat(90)] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in [
        "proc/1/maps",
        "dev/null",
        "srv/proc/kept",
        "srv/Főtanúsítvány",
        &long,
    ] {
        fs::write(root.join(file), file).unwrap();
    }
    fs::hard_link(root.join(&long), root.join("z-hard")).unwrap();
    symlink(format!("/{long}"), root.join("z-soft")).unwrap();
    nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();

    let to = dir.path().join("layer.tar");
    oci::write_layer(&root, &to).unwrap();
    let layer = entries(fs::File::open(&to).unwrap());
    for name in ["dev/null", "proc/1/", "proc/1/maps", "pipe"] {
        assert!(!layer.contains_key(name), "{name}");
    }
    for name in [
        "dev/",
        "proc/",
        "sys/",
        "srv/proc/kept",
        "srv/Főtanúsítvány",
    ] {
        assert!(layer.contains_key(name), "{name}");
    }
    assert_eq!(layer[&long].content, long.as_bytes());
    let (hard, soft) = (&layer["z-hard"], &layer["z-soft"]);
    assert_eq!((hard.kind, &hard.target), (Some(EntryType::Link), &long));
    assert_eq!(
        (soft.kind, &soft.target),
        (Some(EntryType::Symlink), &format!("/{long}"))
    );
    let unpacked = dir.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let status = Command::new("tar")
        .arg("-xf")
        .arg(&to)
        .arg("-C")
        .arg(&unpacked)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fs::metadata(unpacked.join("z-hard")).unwrap().nlink(), 2);
    assert_eq!(fs::read(unpacked.join("z-hard")).unwrap(), long.as_bytes());
}

#[test]
#[ignore = "needs root, and setcap of libcap2-bin"]
fn file_capabilities_are_kept() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("ping"), "#!ping").unwrap();
    let mut setcap = Command::new("setcap");
    let status = setcap
        .arg("cap_net_raw=ep")
        .arg(root.join("ping"))
        .status()
        .unwrap();
    assert!(status.success());
    let to = dir.path().join("layer.tar");
    oci::write_layer(&root, &to).unwrap();
    let layer = entries(fs::File::open(&to).unwrap());
    assert_eq!(
        layer["ping"].capability,
        xattr::get(root.join("ping"), "security.capability").unwrap()
    );
    assert!(layer["ping"].capability.is_some());

    let unpacked = dir.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=security.capability", "-xf"])
        .arg(&to);
    assert!(tar.arg("-C").arg(&unpacked).status().unwrap().success());
    let shown = Command::new("getcap")
        .arg(unpacked.join("ping"))
        .output()
        .unwrap()
        .stdout;
    assert!(String::from_utf8(shown).unwrap().contains("cap_net_raw=ep"));
}

#[test]
#[ignore = "needs root, the network, mmdebstrap and setcap; half a minute"]
fn packages_and_a_script_give_the_same_bytes_twice() {
    let declaration = r#"
        tag = "1"
        packages = ["busybox-static", "libcap2-bin"]
        links = { "/bin/sh" = "busybox" }
        script = "setup.sh"
        cmd = ["/bin/sh"]
    "#;
    let script = r#"
        busybox --install -s
        test "$(cat /run/image/data.txt)" = data
        test -s /etc/resolv.conf
        test -s "$SSL_CERT_FILE"
        test -r /proc/self/status
        echo junk > /tmp/junk
        date +%N > /var/log/now
        setcap cap_setuid=ep /usr/bin/busybox
    "#;
    let archives = [Bench::new(), Bench::new()].map(|bench| {
        let dir = bench.declare("debian", declaration);
        fs::write(dir.join("setup.sh"), script).unwrap();
        let archive = bench.build("debian").unwrap();
        let (_, layer) = open(&archive);
        assert_eq!(layer["usr/bin/vi"].kind, Some(EntryType::Symlink));
        assert!(layer["usr/bin/busybox"].capability.is_some());
        for name in [
            "tmp/junk",
            "run/ca.crt",
            "etc/resolv.conf",
            "var/log/now",
            "var/lib/dpkg/",
        ] {
            assert!(!layer.contains_key(name), "{name}");
        }
        fs::read(archive).unwrap()
    });
    assert!(archives[0] == archives[1]);
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(".work-"), "{mounts}");
}

#[test]
#[ignore = "needs root, the network and mmdebstrap"]
fn a_failing_script_is_named_with_its_last_words() {
    let bench = Bench::new();
    let dir = bench.declare(
        "failing",
        "tag='1'\npackages=['busybox-static']\nlinks={'/bin/sh'='busybox'}\nscript='s.sh'\ncmd=['x']",
    );
    fs::write(
        dir.join("s.sh"),
        "echo started\nbusybox false\necho not reached",
    )
    .unwrap();
    let error = format!("{:#}", bench.build("failing").unwrap_err());
    assert!(
        error.starts_with("image failing: build: script s.sh: "),
        "{error}"
    );
    assert!(
        error.contains(" exited with 1; end of ") && error.ends_with(":\nstarted"),
        "{error}"
    );
    assert_eq!(bench.listing(), Vec::<String>::new());
}
