//! Weight sources without the network: the grammar, the environment, the cache that other clients filled.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use ttc::hub::{HubError, HubErrorKind, HubOptions, HubRef, Resolved, WeightSource, resolve};

const COMMIT: &str = "61c57447d7b0adc8a1a30b2b0adec7a8935aa2a3";

fn source(text: &str) -> Result<WeightSource, HubError> {
    text.parse()
}

fn hub(owner: &str, name: &str, revision: Option<&str>) -> WeightSource {
    WeightSource::Hub(HubRef {
        owner: owner.into(),
        name: name.into(),
        revision: revision.map(str::to_owned),
    })
}

#[test]
fn the_grammar() {
    let cases = [
        ("hf:naver/DUSt3R_512.dpt-x", hub("naver", "DUSt3R_512.dpt-x", None)),
        ("hf:a/b@main", hub("a", "b", Some("main"))),
        ("hf:a/b@refs/pr/1", hub("a", "b", Some("refs/pr/1"))),
        ("synthetic:0", WeightSource::Synthetic(0)),
        ("synthetic:18446744073709551615", WeightSource::Synthetic(u64::MAX)),
        ("synthetic:0xD057E12D057E12D0", WeightSource::Synthetic(0xD057_E12D_057E_12D0)),
        ("weights/model.safetensors", WeightSource::Path("weights/model.safetensors".into())),
        ("a/b", WeightSource::Path("a/b".into())),
    ];
    for (text, expected) in cases {
        assert_eq!(source(text), Ok(expected.clone()), "{text}");
        assert_eq!(source(&expected.to_string()), Ok(expected), "{text}, printed and read");
    }
    let pinned: HubRef = format!("a/b@{COMMIT}").parse().expect("a commit");
    assert!(pinned.is_pinned());
    assert!(!"a/b@main".parse::<HubRef>().expect("a branch").is_pinned());
}

#[test]
fn what_the_grammar_refuses() {
    let texts = [
        "",
        "hf:",
        "hf:a",
        "hf:/b",
        "hf:a/",
        "hf:a/b/c",
        "hf:a/b@",
        "hf:a b/c",
        "hf:../b",
        "hf:a/..",
        "hf:a/./c",
        "hf:a--b/c",
        "hf:a/b@../../x",
        "hf:a/b@/x",
        "hf:a/b@x//y",
        "hf:a/b@x y",
        "hf:a/b@x@y",
        "hf:a/b@x\\y",
        "synthetic",
        "synthetic:",
        "synthetic:-1",
        "synthetic:+1",
        "synthetic:0x",
        "synthetic:1e3",
        "synthetic:18446744073709551616",
        "https://huggingface.co/a/b",
    ];
    for text in texts {
        let error = source(text).expect_err(text);
        assert!(error.kind == HubErrorKind::Usage && error.kind.is_usage(), "{text}: {error}");
        assert!(!error.why.is_empty() && !error.next.is_empty(), "{text}");
    }
}

fn options(vars: &[(&str, &str)]) -> HubOptions {
    let vars: HashMap<&str, &str> = vars.iter().copied().collect();
    HubOptions::from_vars(|name| vars.get(name).map(|v| v.to_string()))
}

#[test]
fn the_environment_places_the_cache() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[("HOME", "/h")], "/h/.cache/huggingface/hub"),
        (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
        (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")], "/f/hub"),
        (&[("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
        (&[("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/c")], "/c"),
        (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "")], "/f/hub"),
    ];
    for (vars, expected) in cases {
        assert_eq!(options(vars).cache_dir, Path::new(expected), "{vars:?}");
    }
}

#[test]
fn the_environment_gives_token_endpoint_and_offline() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let home = dir.path().to_str().expect("plain");
    fs::write(dir.path().join("token"), "hf_stored\n").expect("written");
    fs::write(dir.path().join("other"), "hf_other\n").expect("written");
    let other = dir.path().join("other");
    let other = other.to_str().expect("plain");
    let token = |vars: &[(&str, &str)]| options(vars).token;
    assert_eq!(token(&[("HF_HOME", home)]).as_deref(), Some("hf_stored"));
    assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN_PATH", other)]).as_deref(), Some("hf_other"));
    assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN", "hf_given")]).as_deref(), Some("hf_given"));
    assert_eq!(token(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
    assert_eq!(token(&[("HF_HOME", "/nowhere")]), None);
    for (value, offline) in [("1", true), ("true", true), ("YES", true), ("0", false), ("", false)] {
        assert_eq!(options(&[("HF_HUB_OFFLINE", value)]).offline, offline, "{value}");
    }
    assert_eq!(options(&[]).endpoint, "https://huggingface.co");
    assert_eq!(options(&[("HF_ENDPOINT", "http://mirror")]).endpoint, "http://mirror");
}

/// A cache as the Python client leaves it: links into blobs.
struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Cache {
        Cache(tempfile::tempdir().expect("a scratch folder"))
    }

    fn repo(&self) -> PathBuf {
        self.0.path().join("models--naver--net")
    }

    fn write(&self, path: &str, contents: &str) {
        let path = self.repo().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, contents).expect("written");
    }

    fn link(&self, file: &str, blob: &str) {
        let snapshot = self.repo().join("snapshots").join(COMMIT);
        fs::create_dir_all(&snapshot).expect("created");
        #[cfg(unix)]
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), snapshot.join(file)).expect("linked");
        #[cfg(not(unix))]
        fs::copy(self.repo().join("blobs").join(blob), snapshot.join(file)).map(|_| ()).unwrap_or_default();
    }

    /// Looks without a network.
    fn find(&self, text: &str) -> Result<Vec<String>, HubError> {
        let options = HubOptions {
            cache_dir: self.0.path().to_owned(),
            offline: true,
            ..options(&[("HF_HOME", "/nowhere")])
        };
        match resolve(&source(text)?, &options)? {
            Resolved::Files(found) => {
                assert_eq!(found.origin.map(|o| o.commit).as_deref(), Some(COMMIT));
                Ok(found
                    .files
                    .iter()
                    .map(|f| f.file_name().expect("a name").to_string_lossy().into())
                    .collect())
            }
            Resolved::Synthetic(_) => panic!("a repository is not synthetic"),
        }
    }

    fn absent(&self, text: &str) {
        assert_eq!(self.find(text).expect_err(text).kind, HubErrorKind::NotCached);
    }
}

#[test]
fn a_cached_file_is_found_by_branch_and_by_commit() {
    let cache = Cache::new();
    cache.write("blobs/abc", "contents");
    cache.link("model.safetensors", "abc");
    cache.write("refs/main", COMMIT);
    cache.write("refs/refs/pr/1", &format!("{COMMIT}\n"));
    for text in
        ["hf:naver/net", "hf:naver/net@main", "hf:naver/net@refs/pr/1", &format!("hf:naver/net@{COMMIT}")]
    {
        assert_eq!(cache.find(text), Ok(vec!["model.safetensors".to_owned()]), "{text}");
    }
    cache.absent("hf:naver/net@v2");
    cache.absent("hf:naver/other");
    cache.absent(&format!("hf:naver/net@{}", "0".repeat(40)));
}

#[test]
fn a_link_to_nothing_is_not_a_file() {
    let cache = Cache::new();
    cache.link("model.safetensors", "gone");
    cache.absent(&format!("hf:naver/net@{COMMIT}"));
}

#[test]
fn a_ref_that_is_no_commit_is_ignored() {
    let cache = Cache::new();
    cache.write("blobs/abc", "contents");
    cache.link("model.safetensors", "abc");
    cache.write("refs/main", "../../elsewhere");
    cache.absent("hf:naver/net");
}

#[test]
fn shards_are_found_when_all_are_there() {
    let cache = Cache::new();
    let index = r#"{"weight_map":{"x":"m-2.safetensors","y":"m-1.safetensors","z":"m-2.safetensors"}}"#;
    cache.write("blobs/i", index);
    cache.write("blobs/1", "one");
    cache.link("model.safetensors.index.json", "i");
    cache.link("m-1.safetensors", "1");
    let text = format!("hf:naver/net@{COMMIT}");
    cache.absent(&text);
    cache.write("blobs/2", "two");
    cache.link("m-2.safetensors", "2");
    assert_eq!(cache.find(&text), Ok(vec!["m-1.safetensors".to_owned(), "m-2.safetensors".to_owned()]));
}

#[test]
fn a_list_of_shards_must_stay_in_its_folder() {
    for index in [
        r#"{"weight_map":{"x":"/etc/x.safetensors"}}"#,
        r#"{"weight_map":{"x":"../x.safetensors"}}"#,
        r#"{"weight_map":{"x":"x.bin"}}"#,
        r#"{"weight_map":{"x":7}}"#,
        r#"{"weight_map":{}}"#,
        "{}",
        "not JSON",
    ] {
        let cache = Cache::new();
        cache.write(&format!("snapshots/{COMMIT}/model.safetensors.index.json"), index);
        let error = cache.find(&format!("hf:naver/net@{COMMIT}")).expect_err(index);
        assert_eq!(error.kind, HubErrorKind::NoFile, "{index}: {error}");
    }
}

fn resolve_path(path: &Path) -> Result<Vec<PathBuf>, HubError> {
    match resolve(&WeightSource::Path(path.to_owned()), &options(&[("HF_HOME", "/nowhere")]))? {
        Resolved::Files(found) => {
            assert_eq!(found.origin, None);
            Ok(found.files)
        }
        Resolved::Synthetic(_) => panic!("a path is not synthetic"),
    }
}

#[test]
fn paths_may_be_files_folders_and_lists_of_shards() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let at = |name: &str| dir.path().join(name);
    let refused = |path: &Path| {
        let error = resolve_path(path).expect_err("nothing there");
        assert_eq!(error.kind, HubErrorKind::NoPath, "{error}");
        error
    };
    assert!(refused(dir.path()).why.contains("neither"));
    assert!(refused(Path::new("no_owner/no_name")).next.contains("hf:no_owner/no_name"));
    assert!(refused(&at("w.safetensors")).next.contains("check the path"));
    fs::write(at("model.safetensors.index.json"), r#"{"weight_map":{"x":"m.safetensors"}}"#)
        .expect("written");
    assert!(refused(dir.path()).why.contains("m.safetensors"));
    fs::write(at("m.safetensors"), "x").expect("written");
    assert_eq!(resolve_path(dir.path()), Ok(vec![at("m.safetensors")]));
    assert_eq!(resolve_path(&at("model.safetensors.index.json")), Ok(vec![at("m.safetensors")]));
    assert_eq!(resolve_path(&at("m.safetensors")), Ok(vec![at("m.safetensors")]));
    fs::write(at("model.safetensors"), "x").expect("written");
    assert_eq!(resolve_path(dir.path()), Ok(vec![at("model.safetensors")]), "the single file comes first");
}

#[test]
fn synthetic_weights_need_no_files() {
    let seed = resolve(&WeightSource::Synthetic(5), &options(&[]));
    assert_eq!(seed, Ok(Resolved::Synthetic(5)));
}

#[cfg(not(feature = "hub"))]
#[test]
fn without_network_code_the_error_gives_two_ways_on() {
    let cache = Cache::new();
    let options = HubOptions { cache_dir: cache.0.path().to_owned(), ..options(&[("HF_HOME", "/nowhere")]) };
    let error = resolve(&hub("naver", "net", Some("v1")), &options).expect_err("no network code");
    assert_eq!(error.kind, HubErrorKind::NoNetworkCode);
    assert!(error.next.contains("--features hub"), "{error}");
    assert!(error.next.contains("https://huggingface.co/naver/net/resolve/v1/model.safetensors"), "{error}");
}
