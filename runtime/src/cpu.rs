//! Runs a plan on the CPU: one arena, one pool, nothing allocated between the first step and the last.

use crate::{Artifact, Bytes, RuntimeError};
use arrayvec::ArrayVec;
use half::bf16;
use memmap2::MmapMut;
use std::time::{Duration, Instant};
use ttc_ir::plan::{BufId, Layout, Order, Step, Target};
use ttc_ir::tensor::{DType, Tensor, dims};
use ttc_kernels::cpu::{Aligned, Ctx, Data, DataMut, Isa};
use ttc_kernels::{Call, Kernel, MAX_OPERANDS, Site, Value, ValueMut};

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Worker threads, at least 1.
    pub threads: usize,
    pub isa: Isa,
}

/// Threads to use unless told otherwise: what the process may use (affinity and cgroup limit).
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A loaded artifact, ready to run pairs one after the other.
pub struct Executor {
    artifact: Artifact,
    kernels: Vec<&'static dyn Kernel>,
    arena: MmapMut,
    scratch: Aligned,
    pool: rayon::ThreadPool,
    options: Options,
}

/// What one run took.
#[derive(Clone, Debug)]
pub struct Report {
    pub total: Duration,
    /// Of each step of the plan.
    pub steps: Vec<Duration>,
}

impl Executor {
    /// Finds the kernels and allocates the arena. The weights stay where they are mapped.
    ///
    /// # Errors
    /// An artifact for another target or without weights, a kernel that this version does not have, too little memory.
    pub fn load(artifact: Artifact, options: Options) -> Result<Executor, RuntimeError> {
        let plan = &artifact.plan;
        let Target::Cpu = plan.target;
        if !artifact.has_weights() {
            return Err(RuntimeError::Start {
                what: "the artifact holds no weights".into(),
                next: "compile it with --weights".into(),
            });
        }
        for (name, id) in &plan.inputs {
            if plan.buf(*id).layout != (Layout { order: Order::RowMajor, dtype: DType::F32 }) {
                return Err(RuntimeError::artifact(format!("input `{name}` is not row-major f32")));
            }
        }
        let mut kernels = vec![];
        let mut per_thread = 0;
        for step in &plan.steps {
            let kernel = ttc_kernels::find(&step.kernel).ok_or_else(|| {
                RuntimeError::artifact(format!("it needs kernel `{}`, which this ttc lacks", step.kernel))
            })?;
            per_thread = per_thread.max(check_step(plan, step, kernel)?);
            kernels.push(kernel);
        }
        let options = Options { threads: options.threads.max(1), ..options };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build().map_err(|e| {
            RuntimeError::Start {
                what: format!("no {} threads: {e}", options.threads),
                next: "use fewer with --threads".into(),
            }
        })?;
        let arena_bytes = usize::try_from(plan.arena_bytes)
            .map_err(|_| RuntimeError::artifact("its arena is too large"))?;
        // The size comes from the artifact: what the machine does not have is an error, not the end of the process.
        let arena = Bytes::zeroed(arena_bytes)?;
        let scratch = Aligned::zeroed(Ctx::scratch_len(options.threads, per_thread));
        Ok(Executor { artifact, kernels, arena, scratch, pool, options })
    }

    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// A report to be filled by [`run`](Executor::run).
    pub fn report(&self) -> Report {
        Report { total: Duration::ZERO, steps: vec![Duration::ZERO; self.kernels.len()] }
    }

    /// Runs one pair. `inputs` are row-major in the order of the plan's inputs; `progress(done, of)` is called after every step.
    ///
    /// # Errors
    /// Inputs of another number or size than the plan's.
    pub fn run(
        &mut self,
        inputs: &[&[f32]],
        report: &mut Report,
        progress: &mut (dyn FnMut(usize, usize) + Send),
    ) -> Result<(), RuntimeError> {
        self.write_inputs(inputs)?;
        let started = Instant::now();
        let Executor { artifact, kernels, arena, scratch, pool, options } = self;
        let arena = Arena { base: arena.as_mut_ptr() };
        let steps = &mut report.steps;
        // The whole schedule inside the pool: entering it once costs what entering it for one step does.
        pool.install(|| {
            let mut ctx = Ctx::new(options.isa, options.threads, scratch.as_mut_slice());
            let of = artifact.plan.steps.len();
            for (at, (step, kernel)) in artifact.plan.steps.iter().zip(kernels.iter()).enumerate() {
                let before = Instant::now();
                kernel.run(arena.call(artifact, step), &mut ctx);
                steps[at] = before.elapsed();
                progress(at + 1, of);
            }
        });
        report.total = started.elapsed();
        Ok(())
    }

    fn write_inputs(&mut self, inputs: &[&[f32]]) -> Result<(), RuntimeError> {
        let plan = &self.artifact.plan;
        if inputs.len() != plan.inputs.len() {
            return Err(RuntimeError::Input {
                name: "*".into(),
                what: format!("{} tensors given", inputs.len()),
                expected: format!("{}", plan.inputs.len()),
            });
        }
        for ((name, id), data) in plan.inputs.iter().zip(inputs) {
            let buf = plan.buf(*id);
            if data.len() != buf.shape.iter().product::<usize>() {
                return Err(RuntimeError::Input {
                    name: name.clone(),
                    what: format!("{} values given", data.len()),
                    expected: dims(&buf.shape),
                });
            }
            let at = buf.offset as usize;
            let bytes = &mut self.arena[at..at + data.len() * 4];
            bytes.copy_from_slice(bytemuck::cast_slice(data));
        }
        Ok(())
    }

    /// Output number `at` of the last run, in its logical shape: name and tensor.
    pub fn output(&self, at: usize) -> (&str, Tensor) {
        let plan = &self.artifact.plan;
        let (name, id) = &plan.outputs[at];
        let buf = plan.buf(*id);
        let bytes = buf.bytes().unwrap_or(0) as usize;
        let data = data(buf.layout.dtype, &self.arena[buf.offset as usize..][..bytes]);
        (name, ttc_kernels::to_tensor(&Value { shape: &buf.shape, layout: buf.layout, data }))
    }

    /// All outputs of the last run.
    pub fn outputs(&self) -> Vec<(String, Tensor)> {
        (0..self.artifact.plan.outputs.len())
            .map(|at| self.output(at))
            .map(|(n, t)| (n.to_string(), t))
            .collect()
    }
}

/// Checks that the kernel takes the step as it is written, and returns the scratch bytes that a worker needs.
///
/// An artifact is data from outside: a kernel must not be handed orders or constants that it would misread.
fn check_step(plan: &ttc_ir::Plan, step: &Step, kernel: &'static dyn Kernel) -> Result<usize, RuntimeError> {
    let refuse =
        |what: &str| RuntimeError::artifact(format!("step `{}`: kernel `{}` {what}", step.name, step.kernel));
    let ins: Vec<&[usize]> = step.ins.iter().map(|&i| plan.buf(i).shape.as_slice()).collect();
    let orders: Vec<_> = step.ins.iter().map(|&i| plan.buf(i).layout.order).collect();
    let out = plan.buf(step.out);
    let site = Site { op: &step.op, ins: &ins, out: &out.shape, orders: &orders, math: step.math };
    let choice = kernel.accepts(&site).ok_or_else(|| refuse("does not accept it"))?;
    let exact = |(i, &id): (usize, &BufId)| !choice.exact[i] || plan.buf(id).layout.dtype == DType::F32;
    if choice.order != out.layout.order || !step.ins.iter().enumerate().all(exact) || ins.len() > MAX_OPERANDS
    {
        return Err(refuse("wants other layouts"));
    }
    let weights = step.op.weights(&ins);
    let mut matching = choice.consts.len() == step.consts.len() && step.consts.len() <= MAX_OPERANDS;
    for (wanted, id) in choice.consts.iter().zip(&step.consts) {
        let constant = &plan.consts[id.0 as usize];
        let shape = &plan.weights[constant.weight.0 as usize].shape;
        matching &= match *wanted {
            ttc_kernels::Wanted::Weight { index, pack, dtype } => {
                weights.get(index).is_some_and(|(_, s)| s == shape)
                    && (constant.pack, constant.dtype) == (pack, dtype)
            }
            ttc_kernels::Wanted::RopeTable { positions, d, .. } => {
                *shape == [2, positions, d] && constant.dtype == DType::F32
            }
        };
    }
    if !matching {
        return Err(refuse("wants other constants"));
    }
    Ok(kernel.scratch_bytes(&site))
}

/// The arena while a plan runs.
#[derive(Clone, Copy)]
struct Arena {
    base: *mut u8,
}

// SAFETY: the pointer is used by one step at a time, through slices that do not overlap (see `call`).
#[allow(unsafe_code)]
unsafe impl Send for Arena {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// The operands of a step, as slices of the arena.
    #[allow(unsafe_code)]
    fn call<'a>(self, artifact: &'a Artifact, step: &'a Step) -> Call<'a> {
        let plan = &artifact.plan;
        let place = |id: BufId| {
            let buf = plan.buf(id);
            let bytes = buf.bytes().expect("the plan was verified") as usize;
            // SAFETY: a verified buffer lies inside the arena.
            (buf, unsafe { self.base.add(buf.offset as usize) }, bytes)
        };
        let ins: ArrayVec<Value, MAX_OPERANDS> = step
            .ins
            .iter()
            .map(|&id| {
                let (buf, at, bytes) = place(id);
                // SAFETY: inside the arena, written by an earlier step, and the only slice that is written now, the
                // output, is disjoint from it: both are alive during this step and a verified plan keeps live buffers apart.
                let bytes = unsafe { std::slice::from_raw_parts(at, bytes) };
                Value { shape: &buf.shape, layout: buf.layout, data: data(buf.layout.dtype, bytes) }
            })
            .collect();
        let (buf, at, bytes) = place(step.out);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
        let out = ValueMut { shape: &buf.shape, layout: buf.layout, data: data_mut(buf.layout, bytes) };
        let consts = step
            .consts
            .iter()
            .map(|id| data(plan.consts[id.0 as usize].dtype, artifact.constant(id.0 as usize)));
        Call { op: &step.op, ins, consts: consts.collect(), out, math: step.math }
    }
}

fn data(dtype: DType, bytes: &[u8]) -> Data<'_> {
    match dtype {
        DType::F32 => Data::F32(bytemuck::cast_slice(bytes)),
        DType::BF16 => Data::Bf16(bytemuck::cast_slice::<u8, bf16>(bytes)),
    }
}

fn data_mut(layout: Layout, bytes: &mut [u8]) -> DataMut<'_> {
    match layout.dtype {
        DType::F32 => DataMut::F32(bytemuck::cast_slice_mut(bytes)),
        DType::BF16 => DataMut::Bf16(bytemuck::cast_slice_mut::<u8, bf16>(bytes)),
    }
}
