//! Downloads from a hub on loopback, and everything that can go wrong with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ttc::hub::{Event, HubError, HubErrorKind, HubOptions, HubRef, ResolvedFiles, resolve_hub};

mod hub_server;
use hub_server::{COMMIT, Faults, Hub, NAME, OWNER, git_blob, sha256};

const FILE: &str = "model.safetensors";

struct Bench {
    hub: Hub,
    dir: tempfile::TempDir,
    events: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(files: &[(&str, Vec<u8>)]) -> Bench {
        let dir = tempfile::tempdir().expect("a scratch folder");
        Bench { hub: Hub::new(files), dir, events: Arc::default() }
    }

    /// A repository with one weight file.
    fn single() -> Bench {
        Bench::new(&[(FILE, bytes())])
    }

    fn options(&self) -> HubOptions {
        let cache = self.dir.path().display().to_string();
        let url = self.hub.url();
        // Nothing of the real environment may leak in.
        let mut options = HubOptions::from_vars(|name| match name {
            "HF_HUB_CACHE" => Some(cache.clone()),
            "HF_ENDPOINT" => Some(url.clone()),
            "HF_HOME" => Some(cache.clone()),
            _ => None,
        });
        let events = self.events.clone();
        options.progress = Some(Arc::new(move |event: &Event<'_>| {
            let text = match *event {
                Event::Progress { done, total, .. } => {
                    assert!(done <= total, "{event:?}");
                    return;
                }
                Event::Waiting { .. } => "waiting".to_owned(),
                Event::Started { done, .. } => format!("started at {done}"),
                Event::Retry { done, .. } => format!("retry at {done}"),
                Event::Unverified { .. } => "unverified".to_owned(),
                Event::Finished { file, .. } => format!("finished {file}"),
            };
            events.lock().expect("not poisoned").push(text);
        }));
        options
    }

    fn get(&self, revision: Option<&str>) -> Result<ResolvedFiles, HubError> {
        resolve_hub(&repo(revision), &self.options())
    }

    fn fails(&self) -> HubError {
        self.get(None).expect_err("this must fail")
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().expect("not poisoned").clone()
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("models--{OWNER}--{NAME}")).join(name)
    }

    fn part(&self) -> PathBuf {
        self.folder(&format!("blobs/{}.incomplete", sha256(&bytes())))
    }

    fn blobs(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder("blobs")).expect("a folder of blobs");
        names.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    fn leave_part(&self, contents: &[u8]) {
        fs::create_dir_all(self.folder("blobs")).expect("created");
        fs::write(self.part(), contents).expect("written");
    }
}

fn repo(revision: Option<&str>) -> HubRef {
    HubRef { owner: OWNER.into(), name: NAME.into(), revision: revision.map(str::to_owned) }
}

/// Contents of the weight file: larger than any buffer on the way.
fn bytes() -> Vec<u8> {
    (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("the file is there")
}

#[test]
fn a_branch_is_downloaded_into_the_shared_layout() {
    let bench = Bench::single();
    let got = bench.get(None).expect("downloaded");
    assert_eq!(got.files, [bench.folder(&format!("snapshots/{COMMIT}/{FILE}"))]);
    assert_eq!(got.origin.map(|o| (o.repo, o.commit)), Some((format!("{OWNER}/{NAME}"), COMMIT.to_owned())));
    assert_eq!(read(&got.files[0]), bytes());
    assert_eq!(read(&bench.folder("refs/main")), COMMIT.as_bytes());
    assert_eq!(bench.blobs(), [sha256(&bytes())]);
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(&got.files[0]).expect("a link"),
        PathBuf::from(format!("../../blobs/{}", sha256(&bytes())))
    );
    assert_eq!(bench.events(), ["started at 0", &format!("finished {FILE}")]);
}

#[test]
fn what_is_cached_makes_no_request() {
    let bench = Bench::single();
    let first = bench.get(None).expect("downloaded");
    let requests = bench.hub.requests().len();
    assert_eq!(bench.get(None), Ok(first.clone()));
    assert_eq!(bench.get(Some(COMMIT)).expect("by commit").files, first.files);
    let offline = HubOptions { offline: true, refresh: true, ..bench.options() };
    assert_eq!(resolve_hub(&repo(None), &offline), Ok(first));
    assert_eq!(bench.hub.requests().len(), requests);
}

#[test]
fn offline_makes_no_request() {
    let bench = Bench::single();
    let error =
        resolve_hub(&repo(None), &HubOptions { offline: true, ..bench.options() }).expect_err("not cached");
    assert_eq!(error.kind, HubErrorKind::NotCached);
    assert!(error.next.contains("HF_HUB_OFFLINE"), "{error}");
    assert_eq!(bench.hub.requests(), []);
}

#[test]
fn a_commit_is_asked_for_by_its_id() {
    let bench = Bench::single();
    let got = bench.get(Some(COMMIT)).expect("downloaded");
    assert_eq!(read(&got.files[0]), bytes());
    let all = bench.hub.requests();
    assert!(all.iter().all(|r| r.path.contains(COMMIT) || r.path.starts_with("/storage/")), "{all:?}");
    assert!(!bench.folder("refs").exists(), "a commit is no branch");
}

#[test]
fn the_commit_stays_the_same_if_the_branch_moves_meanwhile() {
    let bench = Bench::single();
    bench.get(None).expect("downloaded");
    let by_branch = bench.hub.requests().iter().filter(|r| r.path.contains("/main/")).count();
    assert_eq!(by_branch, 1, "only the first request may name the branch");
}

#[test]
fn a_cut_connection_is_resumed_with_only_the_rest() {
    let bench = Bench::single();
    bench.hub.faults(Faults { cut: Some((700_001, 1)), ..Faults::default() });
    let got = bench.get(None).expect("downloaded");
    assert_eq!(read(&got.files[0]), bytes());
    let ranges: Vec<_> = bench.hub.downloads().into_iter().map(|r| r.range).collect();
    assert_eq!(ranges, [None, Some(format!("bytes=700001-{}", bytes().len() - 1))]);
    assert_eq!(bench.hub.sent(), bytes().len(), "nothing was fetched twice");
    assert_eq!(bench.events()[1], "retry at 700001");
}

#[test]
fn a_second_run_resumes_what_a_first_one_lost() {
    let bench = Bench::single();
    bench.leave_part(&bytes()[..500_000]);
    bench.hub.faults(Faults { storage_down: Some(503), ..Faults::default() });
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::Network);
    assert!(error.why.contains("503") && error.next.contains("kept"), "{error}");
    assert_eq!(read(&bench.part()).len(), 500_000, "the part is kept");
    bench.hub.faults(Faults::default());
    assert_eq!(read(&bench.get(None).expect("resumed").files[0]), bytes());
    assert_eq!(bench.hub.sent(), bytes().len() - 500_000);
    assert_eq!(bench.blobs().len(), 1, "the part became the blob");
}

#[test]
fn what_a_cut_connection_brought_is_kept_for_the_next_run() {
    let bench = Bench::single();
    bench.hub.faults(Faults { cut: Some((300_003, 1)), down_after_cut: true, ..Faults::default() });
    assert_eq!(bench.fails().kind, HubErrorKind::Network);
    assert_eq!(read(&bench.part()), bytes()[..300_003]);
    bench.hub.faults(Faults::default());
    assert_eq!(read(&bench.get(None).expect("resumed").files[0]), bytes());
    assert_eq!(bench.hub.sent(), bytes().len(), "nothing was fetched twice");
}

#[test]
fn a_complete_part_is_only_checked() {
    let bench = Bench::single();
    bench.leave_part(&bytes());
    assert_eq!(read(&bench.get(None).expect("checked").files[0]), bytes());
    assert_eq!(bench.hub.sent(), 0);
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let bench = Bench::single();
    bench.hub.faults(Faults { corrupt: true, ..Faults::default() });
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::Hash);
    assert!(error.why.contains(&sha256(&bytes())), "{error}");
    assert_eq!(bench.blobs(), [] as [String; 0]);
    assert!(!bench.folder("snapshots").exists(), "nothing may lead to them");
}

#[test]
fn a_damaged_part_is_fetched_again_from_the_start() {
    let bench = Bench::single();
    let mut damaged = bytes()[..400_000].to_vec();
    damaged[17] ^= 0x40;
    bench.leave_part(&damaged);
    assert_eq!(read(&bench.get(None).expect("fetched again").files[0]), bytes());
    assert_eq!(bench.events().iter().filter(|e| *e == "started at 0").count(), 1);
    // A part that is longer than the file cannot be its beginning.
    let longer = Bench::single();
    longer.leave_part(&vec![0; bytes().len() + 1]);
    assert_eq!(read(&longer.get(None).expect("fetched again").files[0]), bytes());
}

#[test]
fn a_server_without_ranges_still_works() {
    let bench = Bench::single();
    bench.leave_part(&bytes()[..500_000]);
    bench.hub.faults(Faults { ignore_ranges: true, ..Faults::default() });
    assert_eq!(read(&bench.get(None).expect("fetched").files[0]), bytes());
}

#[test]
fn another_size_than_announced_is_refused_and_removed() {
    for (overstate, why) in
        [(-1, "more came than the 1199999 bytes"), (1, "1200000 bytes came of the 1200001")]
    {
        // Also when most of it is there from an earlier attempt, or all that the server has.
        for kept in [0, 500_000, bytes().len() - 1, bytes().len()] {
            let bench = Bench::single();
            bench.leave_part(&bytes()[..kept]);
            bench.hub.faults(Faults { overstate, ..Faults::default() });
            let error = bench.fails();
            let text = format!("{overstate} with {kept}: {error}");
            // A part as long as announced fails its checksum, is fetched anew, and then the size tells.
            assert_eq!(error.kind, HubErrorKind::Size, "{text}");
            assert!(error.why.contains(why), "{text}");
            assert_eq!(bench.blobs(), [] as [String; 0], "{text}");
        }
    }
}

#[test]
fn a_slow_server_is_waited_for() {
    let bench = Bench::single();
    bench.hub.faults(Faults { slow: Some(Duration::from_millis(30)), ..Faults::default() });
    assert_eq!(read(&bench.get(None).expect("downloaded").files[0]), bytes());
    assert!(bench.events().iter().all(|e| !e.starts_with("retry")));
}

#[test]
fn a_busy_server_is_asked_again() {
    let bench = Bench::single();
    bench.hub.faults(Faults { busy: 2, ..Faults::default() });
    bench.get(None).expect("downloaded");
    assert_eq!(bench.events()[..2], ["retry at 0", "retry at 0"]);
}

#[test]
fn refusals_say_what_to_do() {
    let cases = [
        (401, "RepoNotFound", HubErrorKind::Auth, "HF_TOKEN"),
        (401, "GatedRepo", HubErrorKind::Auth, "accept its terms"),
        (403, "GatedRepo", HubErrorKind::Auth, "accept its terms"),
        (404, "RepoNotFound", HubErrorKind::NoRepo, "check its name"),
        (404, "RevisionNotFound", HubErrorKind::NoRevision, "after the `@`"),
        (404, "EntryNotFound", HubErrorKind::NoFile, "give its path"),
        (418, "", HubErrorKind::Protocol, "HF_ENDPOINT"),
    ];
    for (status, code, kind, next) in cases {
        let bench = Bench::single();
        bench.hub.faults(Faults { refuse: Some((status, code)), ..Faults::default() });
        let error = bench.fails();
        assert_eq!(error.kind, kind, "{status} {code}: {error}");
        assert!(error.next.contains(next), "{status} {code}: {error}");
        assert!(bench.hub.requests().len() <= 2, "{status} is not worth asking again");
    }
}

#[test]
fn the_file_that_is_missing_is_named() {
    let bench = Bench::new(&[("config.json", b"{}".to_vec())]);
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::NoFile);
    assert!(error.why.contains("no model.safetensors at revision `main`"), "{error}");
    let commit = "0".repeat(40);
    assert_eq!(Bench::single().get(Some(&commit)).expect_err("no commit").kind, HubErrorKind::NoRevision);
}

#[test]
fn the_token_is_sent_and_only_when_given() {
    let bench = Bench::single();
    bench.hub.faults(Faults { token: Some("hf_secret"), ..Faults::default() });
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::Auth);
    assert!(error.why.contains("no token was given"), "{error}");
    assert!(bench.hub.requests().iter().all(|r| r.token.is_none()));
    let wrong = HubOptions { token: Some("hf_other".into()), ..bench.options() };
    let error = resolve_hub(&repo(None), &wrong).expect_err("another's token");
    assert!(error.why.contains("may not read") && !error.to_string().contains("hf_other"), "{error}");
    let right = HubOptions { token: Some("hf_secret".into()), ..bench.options() };
    assert_eq!(read(&resolve_hub(&repo(None), &right).expect("downloaded").files[0]), bytes());
}

#[test]
fn nobody_listening_is_a_network_error() {
    let bench = Bench::single();
    // A port that was free a moment ago.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let nobody = format!("http://127.0.0.1:{port}");
    let error = resolve_hub(&repo(None), &HubOptions { endpoint: nobody.clone(), ..bench.options() });
    let error = error.expect_err("nobody there");
    assert_eq!(error.kind, HubErrorKind::Network);
    assert!(error.what.contains(&nobody) && error.why.to_lowercase().contains("refused"), "{error}");
    let nonsense = resolve_hub(&repo(None), &HubOptions { endpoint: "no address".into(), ..bench.options() });
    assert!(nonsense.expect_err("nonsense").next.contains("HF_ENDPOINT"));
}

#[test]
fn shards_are_fetched_with_their_index() {
    let index = br#"{"metadata":{},"weight_map":{"a":"s-1.safetensors","b":"s-2.safetensors","c":"s-1.safetensors"}}"#;
    let files = [
        ("model.safetensors.index.json", index.to_vec()),
        ("s-1.safetensors", bytes()),
        ("s-2.safetensors", bytes()[..1000].to_vec()),
    ];
    let bench = Bench::new(&files);
    let got = bench.get(None).expect("downloaded");
    let names: Vec<_> = got.files.iter().map(|f| f.file_name().expect("a name").to_string_lossy()).collect();
    assert_eq!(names, ["s-1.safetensors", "s-2.safetensors"]);
    assert_eq!((read(&got.files[0]), read(&got.files[1])), (bytes(), bytes()[..1000].to_vec()));
    assert!(bench.blobs().contains(&git_blob(index)), "small files go by git's id: {:?}", bench.blobs());
    let requests = bench.hub.requests().len();
    assert_eq!(bench.get(None), Ok(got));
    assert_eq!(bench.hub.requests().len(), requests, "cached");
}

#[test]
fn names_that_lead_out_of_the_cache_are_refused() {
    let index = br#"{"weight_map":{"a":"../../../outside.safetensors"}}"#;
    let bench = Bench::new(&[("model.safetensors.index.json", index.to_vec())]);
    let error = bench.fails();
    assert!(error.why.contains("outside"), "{error}");
    let bench = Bench::single();
    bench.hub.faults(Faults { etag: Some("../../outside"), ..Faults::default() });
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::Protocol);
    assert!(error.why.contains("ETag"), "{error}");
}

#[test]
fn an_etag_that_is_no_checksum_is_reported() {
    let bench = Bench::single();
    bench.hub.faults(Faults { etag: Some("version-7"), ..Faults::default() });
    assert_eq!(read(&bench.get(None).expect("downloaded").files[0]), bytes());
    assert_eq!(bench.events()[1], "unverified");
}

#[test]
fn refreshing_follows_a_branch_without_fetching_known_contents() {
    let bench = Bench::single();
    let old = bench.get(None).expect("downloaded");
    let moved = "f".repeat(40);
    bench.hub.commit(&moved);
    assert_eq!(bench.get(None), Ok(old), "without refresh the cache answers");
    let sent = bench.hub.sent();
    let new = resolve_hub(&repo(None), &HubOptions { refresh: true, ..bench.options() }).expect("refreshed");
    assert_eq!(new.origin.map(|o| o.commit), Some(moved.clone()));
    assert_eq!(read(&new.files[0]), bytes());
    assert_eq!(bench.hub.sent(), sent, "the same contents are not fetched again");
    assert_eq!(read(&bench.folder("refs/main")), moved.as_bytes());
}

#[test]
fn two_at_once_fetch_once() {
    let bench = Bench::single();
    bench.hub.faults(Faults { slow: Some(Duration::from_millis(40)), ..Faults::default() });
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(|| bench.get(None));
        (bench.get(None), other.join().expect("no panic"))
    });
    assert_eq!(a, b);
    assert_eq!(read(&a.expect("downloaded").files[0]), bytes());
    assert_eq!(bench.hub.sent(), bytes().len());
    assert!(bench.events().contains(&"waiting".to_owned()), "{:?}", bench.events());
}

#[test]
fn inside_an_async_runtime() {
    let bench = Bench::single();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let got = runtime.block_on(async { bench.get(None) });
    assert_eq!(read(&got.expect("downloaded").files[0]), bytes());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_says_so() {
    let bench = Bench::single();
    fs::create_dir_all(bench.folder("blobs")).expect("created");
    std::os::unix::fs::symlink("/dev/full", bench.part()).expect("linked");
    let error = bench.fails();
    assert_eq!(error.kind, HubErrorKind::Disk);
    assert!(error.next.contains("free some space"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_cache_that_cannot_be_made_says_so() {
    let bench = Bench::single();
    let file = bench.dir.path().join("file");
    fs::write(&file, b"").expect("written");
    let error =
        resolve_hub(&repo(None), &HubOptions { cache_dir: file, ..bench.options() }).expect_err("no folder");
    assert_eq!(error.kind, HubErrorKind::Disk, "{error}");
}
