//! Where a kernel runs: instruction set, worker count, and scratch memory that the caller owns.
#![allow(unsafe_code)] // Workers divide one scratch buffer by raw pointer.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::Isa;

/// One cache line; the unit of alignment of everything that the kernels stream.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An owned, zeroed, 64-byte aligned buffer: for scratch and for packed weights.
pub struct Aligned(Vec<Line>, usize);

impl Aligned {
    pub fn zeroed(bytes: usize) -> Aligned {
        Aligned(vec![Line::zeroed(); bytes.div_ceil(64)], bytes)
    }

    /// Its bytes as elements of `T`; `bytes` must be a multiple of the size of `T`.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&bytemuck::cast_slice::<Line, u8>(&self.0)[..self.1])
    }

    /// Its bytes as elements of `T`; `bytes` must be a multiple of the size of `T`.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<Line, u8>(&mut self.0)[..self.1])
    }
}

/// What every kernel is called with. One call at a time uses a context (`&mut`), so that the scratch
/// memory of its workers is its own.
pub struct Ctx<'a> {
    team: Team,
    _scratch: PhantomData<&'a mut [u8]>,
}

impl<'a> Ctx<'a> {
    /// `threads` workers, each with an equal part of `scratch`. With more than one, call the kernels inside a
    /// rayon pool (`pool.install`) of at most that many threads; with one, they run on the calling thread.
    ///
    /// Panics if this processor cannot run `isa`.
    pub fn new(isa: Isa, threads: usize, scratch: &'a mut [u8]) -> Ctx<'a> {
        assert!(isa.supported(), "this processor cannot run {isa}");
        let threads = threads.max(1);
        let lost = scratch.as_ptr().align_offset(64).min(scratch.len());
        let usable = &mut scratch[lost..];
        let per_thread = usable.len() / threads / 64 * 64;
        let team = Team { isa, threads, base: usable.as_mut_ptr(), per_thread };
        Ctx { team, _scratch: PhantomData }
    }

    /// Bytes of a scratch buffer that gives each of `threads` workers `per_thread` bytes.
    pub fn scratch_len(threads: usize, per_thread: usize) -> usize {
        threads.max(1) * per_thread.next_multiple_of(64) + 64
    }

    pub fn isa(&self) -> Isa {
        self.team.isa
    }

    pub fn threads(&self) -> usize {
        self.team.threads
    }

    /// The shareable view for one kernel call, which needs `bytes` of scratch for each worker.
    pub(super) fn team(&mut self, bytes: usize) -> Team {
        assert!(
            bytes <= self.team.per_thread,
            "{bytes} bytes of scratch per thread are needed, {} were given",
            self.team.per_thread
        );
        self.team
    }
}

/// A [`Ctx`] during one call, shared by its workers.
#[derive(Clone, Copy)]
pub(super) struct Team {
    pub isa: Isa,
    pub threads: usize,
    base: *mut u8,
    per_thread: usize,
}

// SAFETY: `base` is only dereferenced through `scratch`, which gives each worker its own part.
unsafe impl Send for Team {}
// SAFETY: as above.
unsafe impl Sync for Team {}

impl Team {
    /// The scratch memory of the calling worker. A task never waits on other tasks, so one worker runs
    /// one task at a time and the memory is its own until the task ends.
    pub fn scratch(&self) -> Scratch {
        let worker = if self.threads == 1 { 0 } else { rayon::current_thread_index().unwrap_or(0) };
        assert!(worker < self.threads, "the rayon pool has more threads than the context");
        // SAFETY: `worker < threads`, and the buffer has `threads * per_thread` bytes.
        Scratch { at: unsafe { self.base.add(worker * self.per_thread) }, left: self.per_thread }
    }

    /// Calls `f(0)..f(n - 1)`, in parallel, without allocating. Neighbouring indices tend to share a worker.
    pub fn par_for<F: Fn(usize) + Sync>(&self, n: usize, f: F) {
        fn split<F: Fn(usize) + Sync>(lo: usize, hi: usize, f: &F) {
            if hi - lo == 1 {
                f(lo);
            } else {
                let mid = lo + (hi - lo) / 2;
                rayon::join(|| split(lo, mid, f), || split(mid, hi, f));
            }
        }
        if self.threads == 1 {
            (0..n).for_each(f);
        } else if n > 0 {
            split(0, n, &f);
        }
    }

    /// Divides `0..n` into about equal ranges of at least `grain`, a few per worker, and calls `f(lo, hi)`.
    pub fn par_ranges<F: Fn(usize, usize) + Sync>(&self, n: usize, grain: usize, f: F) {
        let parts = n.div_ceil(grain.max(1)).min(self.threads * 8);
        self.par_for(parts, |i| f(n * i / parts, n * (i + 1) / parts));
    }
}

/// A worker's scratch memory, handed out front to back in 64-byte steps.
pub(super) struct Scratch {
    at: *mut u8,
    left: usize,
}

impl Scratch {
    /// The next `n` 32-bit words, of any content.
    pub fn words(&mut self, n: usize) -> *mut u32 {
        let bytes = word_bytes(n);
        assert!(bytes <= self.left, "scratch memory exhausted");
        let taken = self.at;
        // SAFETY: `bytes <= left`, so this stays inside the worker's part or one past its end.
        self.at = unsafe { self.at.add(bytes) };
        self.left -= bytes;
        taken.cast()
    }

    /// The next `n` floats, of any content.
    pub fn floats(&mut self, n: usize) -> *mut f32 {
        self.words(n).cast()
    }
}

/// What [`Scratch::words`] takes for `n` words.
pub(super) fn word_bytes(n: usize) -> usize {
    (n * 4).next_multiple_of(64)
}
