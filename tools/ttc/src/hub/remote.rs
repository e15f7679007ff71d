//! Asking the hub. `hf-hub` moves the bytes (redirects, tokens, ranges, Xet storage); two things are done here because
//! its interface lacks them: reading the checksum of a large file, and keeping what a cut download brought.

use std::time::Duration;

use hf_hub::repository::{HFRepository, RepoTypeModel};
use hf_hub::{HFClient, HFError};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};

use super::cache::{INDEX, RepoCache, SINGLE, shard_names};
use super::error::{HubError, HubErrorKind};
use super::options::{Event, HubOptions};
use super::source::{HubRef, is_commit};
use super::{HubOrigin, ResolvedFiles};

/// A silent connection is given up after this long.
const SILENCE: Duration = Duration::from_secs(60);
/// Tries of one request before its error counts.
pub(super) const TRIES: u32 = 4;

/// Downloads the weights of `repo` into the cache.
///
/// # Errors
/// As [`resolve`](super::resolve).
pub(super) fn fetch(
    repo: &HubRef,
    options: &HubOptions,
    cache: &RepoCache,
) -> Result<ResolvedFiles, HubError> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| {
            HubError::new(HubErrorKind::Network, format!("cannot get {repo}"), e.to_string(), "try again")
        })?;
        runtime.block_on(Remote::new(repo, options, cache)?.weights())
    };
    // On a thread of its own: a caller may be inside an async runtime, where another one may not block.
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What the hub says about a file of one commit.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub commit: String,
    /// The name of its contents: sha256 for large files, the git blob id for small ones.
    pub etag: String,
    /// Bytes.
    pub size: u64,
}

pub(super) struct Remote<'a> {
    pub(super) repo: &'a HubRef,
    pub(super) options: &'a HubOptions,
    pub(super) cache: &'a RepoCache,
    /// For requests whose redirects must not be followed.
    http: Client,
    pub(super) files: HFRepository<RepoTypeModel>,
}

impl<'a> Remote<'a> {
    fn new(repo: &'a HubRef, options: &'a HubOptions, cache: &'a RepoCache) -> Result<Remote<'a>, HubError> {
        let fail = |why: String| {
            let next = "check HF_ENDPOINT and HF_TOKEN";
            HubError::new(HubErrorKind::Usage, format!("cannot talk to {}", options.endpoint), why, next)
        };
        let client = || {
            let agent = concat!("ttc/", env!("CARGO_PKG_VERSION"));
            Client::builder().user_agent(agent).connect_timeout(SILENCE / 2).read_timeout(SILENCE)
        };
        let http =
            client().redirect(reqwest::redirect::Policy::none()).build().map_err(|e| fail(cause(&e)))?;
        let following = client().build().map_err(|e| fail(cause(&e)))?;
        // Tries are counted here, with what arrived kept in between, so hf-hub is to make one each.
        let hub = HFClient::builder().endpoint(&options.endpoint).client(following).retry_max_attempts(0);
        // Left unset, it would take the token of the environment, which the options may have left out on purpose. One
        // that no header can carry is never sent.
        let hub = hub.token(options.token.as_deref().unwrap_or("\n"));
        let hub = hub.cache_enabled(false).build().map_err(|e| fail(e.to_string()))?;
        let files = hub.model(repo.owner.as_str(), repo.name.as_str());
        Ok(Remote { repo, options, cache, http, files })
    }

    /// The single weight file, or else all shards.
    async fn weights(&self) -> Result<ResolvedFiles, HubError> {
        let revision = self.repo.revision();
        let (commit, files) = match self.meta(revision, SINGLE).await {
            Ok(meta) => (meta.commit.clone(), vec![self.file(SINGLE, &meta).await?]),
            Err(single) if single.kind == HubErrorKind::NoFile => {
                // The more telling error is that of the file everyone expects.
                let index = self.meta(revision, INDEX).await;
                let index = index.map_err(|e| if e.kind == HubErrorKind::NoFile { single } else { e })?;
                let path = self.file(INDEX, &index).await?;
                let text = std::fs::read_to_string(&path).map_err(|e| HubError::disk("read", &path, &e))?;
                let names = shard_names(&text)
                    .map_err(|why| self.protocol(&format!("{INDEX} is unusable: {why}")))?;
                let mut files = Vec::new();
                for name in names {
                    let meta = self.meta(&index.commit, &name).await?;
                    files.push(self.file(&name, &meta).await?);
                }
                (index.commit, files)
            }
            Err(e) => return Err(e),
        };
        if !self.repo.is_pinned() {
            self.cache.remember(revision, &commit)?;
        }
        Ok(ResolvedFiles { files, origin: Some(HubOrigin { repo: self.repo.repo(), commit }) })
    }

    /// Asks about one file, trying again while the network is at fault.
    async fn meta(&self, revision: &str, file: &str) -> Result<Meta, HubError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.head(revision, file).await {
                Err(e) if e.kind == HubErrorKind::Network && tries < TRIES => {
                    self.options.emit(Event::Retry { file, done: 0, why: &e.why });
                    tokio::time::sleep(pause(tries)).await;
                }
                answer => return answer,
            }
        }
    }

    /// One HEAD request. A large file's answer redirects to storage, and only the redirect itself carries commit,
    /// checksum and size; hf-hub's own request follows it and loses them.
    async fn head(&self, revision: &str, file: &str) -> Result<Meta, HubError> {
        let mut url = Url::parse(&self.options.endpoint)
            .ok()
            .filter(|url| !url.cannot_be_a_base())
            .ok_or_else(|| self.protocol("HF_ENDPOINT is no web address"))?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend([&self.repo.owner, &self.repo.name, "resolve", revision])
                .extend(file.split('/'));
        }
        // A renamed repository redirects inside the hub, by a path.
        for _ in 0..5 {
            let mut request = self.http.head(url.clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(token) = &self.options.token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await.map_err(|e| self.network(&cause(&e)))?;
            let to = header(answer.headers(), LOCATION.as_str());
            match to {
                Some(to)
                    if answer.status().is_redirection() && to.starts_with('/') && !to.starts_with("//") =>
                {
                    url =
                        url.join(&to).map_err(|e| self.protocol(&format!("it redirects to `{to}` ({e})")))?;
                }
                _ => return self.read_meta(revision, file, &answer),
            }
        }
        Err(self.protocol("it redirects without end"))
    }

    fn read_meta(&self, revision: &str, file: &str, answer: &Response) -> Result<Meta, HubError> {
        let status = answer.status();
        let headers = answer.headers();
        if !status.is_success() && !status.is_redirection() {
            return Err(self.refusal(file, status, header(headers, "x-error-code").as_deref()));
        }
        let etag = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()));
        let etag = etag.ok_or_else(|| self.protocol("it gives no ETag"))?;
        let etag = etag.strip_prefix("W/").unwrap_or(&etag).trim_matches('"').to_owned();
        // It becomes the name of a file.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if etag.is_empty() || etag.len() > 128 || etag.starts_with('.') || !etag.bytes().all(plain) {
            return Err(self.protocol(&format!("its ETag `{etag}` cannot name a file")));
        }
        let size = header(headers, "x-linked-size").or_else(|| header(headers, CONTENT_LENGTH.as_str()));
        let size = size.and_then(|s| s.parse().ok()).ok_or_else(|| self.protocol("it gives no size"))?;
        let commit = header(headers, "x-repo-commit").filter(|c| is_commit(c));
        let commit = commit.or_else(|| is_commit(revision).then(|| revision.to_owned()));
        let commit = commit.ok_or_else(|| self.protocol("it does not say which commit this is"))?;
        if is_commit(revision) && commit != revision {
            return Err(self.protocol(&format!("it answers for commit {commit}")));
        }
        Ok(Meta { commit, etag, size })
    }

    /// The error behind a status code; `code` is the hub's own word for it.
    fn refusal(&self, file: &str, status: StatusCode, code: Option<&str>) -> HubError {
        let (repo, revision) = (self.repo.repo(), self.repo.revision());
        let error = |kind, why: String, next: &str| {
            HubError::new(kind, format!("cannot get {}", self.repo), why, next)
        };
        let token = if self.options.token.is_some() {
            "the token given may not read it"
        } else {
            "no token was given"
        };
        match (status.as_u16(), code) {
            (404, Some("RepoNotFound")) => error(
                HubErrorKind::NoRepo,
                format!("there is no repository {repo}, or it is private and {token}"),
                "check its name; for a private repository set HF_TOKEN",
            ),
            (404, Some("RevisionNotFound")) => error(
                HubErrorKind::NoRevision,
                format!("{repo} has no revision `{revision}`"),
                "check the branch, tag or commit after the `@`",
            ),
            (404, _) => error(
                HubErrorKind::NoFile,
                format!("{repo} has no {file} at revision `{revision}`"),
                "check the name, or download another file of it and give its path",
            ),
            (401 | 403, code) => {
                let gated = code == Some("GatedRepo");
                let why = match gated {
                    true => format!("access to {repo} must be asked for, and {token}"),
                    false => format!("{repo} is private or does not exist, and {token}"),
                };
                let next = match gated {
                    true => "accept its terms on its page, then set HF_TOKEN to a token of that account",
                    false => "check its name, then set HF_TOKEN to a token that may read it",
                };
                error(HubErrorKind::Auth, format!("{why} (HTTP {})", status.as_u16()), next)
            }
            (408 | 429 | 500.., _) => self.network(&format!("it answers HTTP {status}")),
            _ => self.protocol(&format!("it answers HTTP {status}")),
        }
    }

    pub(super) fn network(&self, why: &str) -> HubError {
        HubError::new(
            HubErrorKind::Network,
            format!("cannot get {} from {}", self.repo, self.options.endpoint),
            why,
            "check the connection and HF_ENDPOINT, then run the same command again: what arrived is kept",
        )
    }

    fn protocol(&self, why: &str) -> HubError {
        HubError::new(
            HubErrorKind::Protocol,
            format!("cannot get {} from {}", self.repo, self.options.endpoint),
            why,
            "check that HF_ENDPOINT is a Hugging Face hub or a full mirror of one",
        )
    }

    /// An error of hf-hub in our words.
    pub(super) fn translate(&self, file: &str, error: &HFError) -> HubError {
        match error {
            HFError::AuthRequired { context }
            | HFError::Forbidden { context }
            | HFError::Http { context } => self.refusal(file, context.status, context.error_code.as_deref()),
            HFError::EntryNotFound { context, .. } => {
                let code = context.as_ref().and_then(|c| c.error_code.as_deref());
                self.refusal(file, StatusCode::NOT_FOUND, code)
            }
            HFError::Request { source, .. } => self.network(&cause(source)),
            other => self.network(&other.to_string()),
        }
    }
}

/// How long to wait after a failed try: 0.2 s, doubling.
pub(super) fn pause(tries: u32) -> Duration {
    Duration::from_millis(100 << tries)
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The innermost reason, which says more than "error sending request".
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
