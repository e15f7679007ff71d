use crate::cli::{Context, HowArgs};
use crate::error::CliError;
use crate::pipeline::{self, Input, Loaded};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use ttc_ir::{Model, Sizes};
use ttc_runtime::Executor;
use ttc_scene::{Cloud, ConfDtype, ConfThreshold, Fit, Limits, ModelView, NetSize, Photo, View};

#[derive(Args)]
pub struct Run {
    /// Model file (.ron) or compiled artifact, then the two photos; without a model, models/dust3r.ron.
    #[arg(value_name = "[MODEL] IMG1 IMG2", num_args = 1.., required = true)]
    paths: Vec<PathBuf>,
    /// Folder for the results.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    how: HowArgs,
    /// crop: fill the size and cut what sticks out (upstream's way). pad: keep every pixel, gray borders.
    #[arg(long, value_enum, default_value = "crop")]
    fit: FitArg,
    /// What to write.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "npz,ply,glb,png")]
    save: Vec<Save>,
    /// Drop points less sure than this from the clouds: a confidence (>= 1), or with % a share of all points.
    #[arg(long, default_value = "10%")]
    min_conf: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FitArg {
    Crop,
    Pad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Save {
    Npz,
    Ply,
    Glb,
    Png,
}

impl Save {
    pub const ALL: [Save; 4] = [Save::Npz, Save::Ply, Save::Glb, Save::Png];
}

/// Two images as the network sees them.
pub struct Pair {
    pub views: [ModelView; 2],
}

/// Where results go, and which.
pub struct Output {
    pub folder: PathBuf,
    pub save: Vec<Save>,
    pub min_conf: ConfThreshold,
}

/// What was written, and how long the parts took, in ms.
pub struct Written {
    pub files: Vec<PathBuf>,
    /// Points in a cloud file, after filtering.
    pub points: usize,
    pub forward_ms: f64,
    pub encode_ms: f64,
}

impl Written {
    pub fn timing(&self) -> Value {
        json!({"forward": self.forward_ms, "encode": self.encode_ms})
    }
}

pub fn run(args: Run, context: &Context) -> Result<(), CliError> {
    let started = Instant::now();
    let (model, images) = match &args.paths[..] {
        [model, a, b] => (model.clone(), [a, b]),
        [a, b] => (PathBuf::from("models/dust3r.ron"), [a, b]),
        given => {
            let what = format!("{} paths given; expected [MODEL] IMG1 IMG2", given.len());
            return Err(CliError::usage(what));
        }
    };
    let min_conf = parse_min_conf(&args.min_conf)?;
    let photos = [read_photo(images[0])?, read_photo(images[1])?];
    let decode_ms = started.elapsed().as_secs_f64() * 1e3;
    let fit = if args.fit == FitArg::Pad { Fit::Pad } else { Fit::Crop };
    let (mut loaded, sizes) = load(&model, &args.how, fit, &photos, context)?;
    let before = Instant::now();
    let [(w1, h1), (w2, h2)] = sizes;
    let views = [ttc_scene::prepare(&photos[0], fit, w1, h1)?, ttc_scene::prepare(&photos[1], fit, w2, h2)?];
    let preprocess_ms = before.elapsed().as_secs_f64() * 1e3;
    let notes = photos.iter().map(|p| &p.notes).chain(views.iter().map(|v| &v.notes));
    for (image, note) in notes.enumerate().flat_map(|(i, notes)| notes.iter().map(move |n| (i % 2, n))) {
        context.progress.note(&format!("{}: {note}", images[image].display()));
    }
    let pair = Pair { views };
    let output = Output { folder: args.output.clone(), save: args.save.clone(), min_conf };
    let written = write_pair(&mut loaded.executor, &pair, &output, context)?;
    context.say(&format!(
        "{:.0} ms at {w1}x{h1}, {} points in the cloud (frame: camera 1, x right, y down, z forward; up to scale)",
        written.forward_ms, written.points
    ));
    written.files.iter().for_each(|f| context.say(&f.display().to_string()));
    let mut timing = written.timing();
    timing["decode"] = json!(decode_ms);
    timing["preprocess"] = json!(preprocess_ms);
    timing["load"] = json!(loaded.load.as_secs_f64() * 1e3);
    timing["total"] = json!(started.elapsed().as_secs_f64() * 1e3);
    context.report(json!({
        "timing_ms": timing,
        "files": written.files,
        "points": written.points,
        "pose": null,
        "pose_status": "not computed",
        "preprocess": pair.views.iter().map(|v| json!(v.map)).collect::<Vec<_>>(),
        "sizes": [[w1, h1], [w2, h2]],
    }));
    Ok(())
}

/// Loads the model for sizes that suit the photos; returns them as width and height.
fn load(
    path: &Path,
    how: &HowArgs,
    fit: Fit,
    photos: &[Photo; 2],
    context: &Context,
) -> Result<(Loaded, [(u32, u32); 2]), CliError> {
    match pipeline::open(path)? {
        Input::Artifact(artifact, started) => {
            let side = |at: usize| {
                let (_, id) = &artifact.plan.inputs[at];
                let shape = &artifact.plan.buf(*id).shape;
                (shape[3] as u32, shape[2] as u32)
            };
            let sizes = match artifact.plan.inputs.len() {
                2 => [side(0), side(1)],
                n => {
                    return Err(CliError::usage(format!(
                        "the artifact takes {n} inputs; expected two images"
                    )));
                }
            };
            Ok((pipeline::load_artifact(*artifact, started, how, context)?, sizes))
        }
        Input::Model(model) => {
            let sizes = choose_sizes(&model, how.size.as_deref(), fit, photos)?;
            let [(w1, h1), (w2, h2)] = sizes.map(|(w, h)| (w as usize, h as usize));
            let wanted = Sizes { view1: (h1, w1), view2: (h2, w2) };
            Ok((pipeline::load(Input::Model(model), how, Some(wanted), context)?, sizes))
        }
    }
}

fn choose_sizes(
    model: &Model,
    arg: Option<&str>,
    fit: Fit,
    photos: &[Photo; 2],
) -> Result<[(u32, u32); 2], CliError> {
    match arg {
        Some(text) if text != "auto" => Ok(crate::cli::parse_size(text)?.map(|(w, h)| (w as u32, h as u32))),
        _ => {
            let size = model.size.0.max(model.size.1) as u32;
            // Networks of 256 pixels and less were trained on squares.
            let rule = if size <= 256 {
                NetSize::Square { size }
            } else {
                NetSize::LongSide { size, allow_square: false }
            };
            Ok(ttc_scene::auto_sizes(fit, rule, [&photos[0], &photos[1]])?)
        }
    }
}

fn read_photo(path: &Path) -> Result<Photo, CliError> {
    let limits = Limits::default();
    let size = std::fs::metadata(path).map_err(|e| CliError::read(path, e))?.len();
    if size > limits.max_bytes {
        return Err(CliError::usage(format!(
            "{}: {size} bytes; expected at most {}",
            path.display(),
            limits.max_bytes
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| CliError::read(path, e))?;
    ttc_scene::decode(&bytes, &limits).map_err(|e| {
        let e = CliError::from(e);
        CliError { message: format!("{}: {}", path.display(), e.message), ..e }
    })
}

fn parse_min_conf(text: &str) -> Result<ConfThreshold, CliError> {
    let number = |s: &str| s.trim().parse::<f32>().ok().filter(|n| n.is_finite());
    let parsed = match text.strip_suffix('%') {
        Some(share) => number(share).filter(|n| (0.0..=100.0).contains(n)).map(ConfThreshold::Percentile),
        None => number(text).map(ConfThreshold::Absolute),
    };
    parsed.ok_or_else(|| {
        CliError::usage(format!("--min-conf {text}: expected a confidence like 1.5, or a share like 10%"))
    })
}

/// Runs the pair and writes its files.
pub fn write_pair(
    executor: &mut Executor,
    pair: &Pair,
    output: &Output,
    context: &Context,
) -> Result<Written, CliError> {
    std::fs::create_dir_all(&output.folder).map_err(|e| CliError::write(&output.folder, e))?;
    let inputs = [ttc_scene::normalised(&pair.views[0]), ttc_scene::normalised(&pair.views[1])];
    let report = pipeline::forward_pair(executor, &[&inputs[0], &inputs[1]], context)?;
    let before = Instant::now();
    let outputs = executor.outputs();
    let find = |name: &str| -> Result<&[f32], CliError> {
        let found = outputs.iter().find(|(n, _)| n == name).map(|(_, t)| t.data.as_slice());
        found.ok_or_else(|| CliError::usage(format!("the model has no output `{name}`")))
    };
    let view = |at: usize, pts3d, conf| {
        let v = &pair.views[at];
        View { width: v.width, height: v.height, pts3d, conf, rgb: &v.rgb, valid: v.map.valid }
    };
    let views = [view(0, find("pts3d1")?, find("conf1")?), view(1, find("pts3d2")?, find("conf2")?)];
    let note = executor.artifact().plan.source.licence.clone();
    let cloud = Cloud { views: &views, min_conf: output.min_conf, note: &note };
    let (files, points) = write_files(&cloud, output)?;
    let encode_ms = before.elapsed().as_secs_f64() * 1e3;
    Ok(Written { files, points, forward_ms: report.total.as_secs_f64() * 1e3, encode_ms })
}

fn write_files(cloud: &Cloud, output: &Output) -> Result<(Vec<PathBuf>, usize), CliError> {
    let mut files = vec![];
    let kept = cloud.points().map_err(|e| CliError::usage(e.to_string()))?;
    let mut points = kept.conf.len();
    let mut write =
        |name: &str, body: &mut dyn FnMut(&mut BufWriter<File>) -> Result<(), ttc_scene::ExportError>| {
            let path = output.folder.join(name);
            let fail = |e: String| CliError::write(&path, e);
            let mut file = BufWriter::new(File::create(&path).map_err(|e| fail(e.to_string()))?);
            body(&mut file).map_err(|e| fail(e.to_string()))?;
            file.flush().map_err(|e| fail(e.to_string()))?;
            files.push(path);
            Ok::<_, CliError>(())
        };
    for kind in &output.save {
        match kind {
            Save::Npz => {
                write("pair.npz", &mut |f| ttc_scene::write_pair_npz(f, cloud, ConfDtype::F32).map(drop))?
            }
            Save::Ply => {
                write("cloud.ply", &mut |f| ttc_scene::write_ply(f, cloud).map(|w| points = w.points))?
            }
            Save::Glb => {
                write("cloud.glb", &mut |f| ttc_scene::write_glb(f, cloud).map(|w| points = w.points))?
            }
            Save::Png => {
                for (at, view) in cloud.views.iter().enumerate() {
                    write(&format!("depth{}.png", at + 1), &mut |f| {
                        ttc_scene::write_depth_png(f, view).map(drop)
                    })?;
                    write(&format!("conf{}.png", at + 1), &mut |f| {
                        ttc_scene::write_confidence_png(f, view).map(drop)
                    })?;
                }
                write("overview.png", &mut |f| ttc_scene::write_overview_png(f, cloud))?;
            }
        }
    }
    Ok((files, points))
}
