//! Same input, same bits, whatever the number of threads; and nothing allocated while a plan runs.
#![allow(unsafe_code)] // A counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use ttc_codegen::weights::{GOLDEN_SEED, Weights};
use ttc_ir::Math;
use ttc_tests::{artifact, graph, image, load, plan, run};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One test, for the counter counts every thread of the process.
#[test]
fn runs_are_bit_equal_and_allocate_nothing() {
    for (model, math) in [
        ("golden-tiny-dpt", Math::F32),
        ("golden-tiny-dpt", Math::Bf16),
        ("golden-tiny-linear", Math::Bf16),
        ("golden-tiny-mast3r", Math::F32),
    ] {
        let bytes =
            artifact(&plan(&graph(model, (96, 64), (64, 96)), math), &Weights::synthetic(GOLDEN_SEED));
        let (a, b) = (image(96, 64, 0), image(64, 96, 1));
        let mut one = load(&bytes, 1);
        let reference = run(&mut one, &[&a, &b]);
        assert!(reference.iter().all(|(_, t)| t.data.iter().all(|v| v.is_finite())));
        assert!(run(&mut one, &[&a, &b]) == reference, "{model} {math}: a second run differs");
        for threads in [2, 3, 7] {
            let mut executor = load(&bytes, threads);
            assert!(run(&mut executor, &[&a, &b]) == reference, "{model} {math}: {threads} threads differ");
            let mut report = executor.report();
            let (mut first, mut last) = (None, 0);
            let mut count = |_: usize, _: usize| {
                let now = ALLOCATIONS.load(Ordering::Relaxed);
                first.get_or_insert(now);
                last = now;
            };
            executor.run(&[&a, &b], &mut report, &mut count).unwrap();
            assert_eq!(first, Some(last), "{model} {math}, {threads} threads: allocated while running");
        }
    }
}
