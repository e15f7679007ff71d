//! Static memory: every owning buffer gets an arena offset such that no two that are alive together overlap.

use ttc_ir::plan::{BufId, Draft};

/// Sets the offsets of all buffers and the size of the arena.
///
/// Largest first, each at the lowest offset that is free during its life (greedy by size, Pisarchyk and Lee 2020). A view lies where its
/// offset relative to its owner, which must be stored in `offset`, puts it.
pub(crate) fn place(draft: &mut Draft) {
    let align = draft.target.align();
    let lives = draft.lives();
    let size = |draft: &Draft, at: usize| {
        draft.bufs[at].bytes().expect("sizes were checked").next_multiple_of(align)
    };
    let mut order: Vec<usize> = (0..draft.bufs.len()).filter(|&at| draft.bufs[at].of.is_none()).collect();
    // Ties by order of creation, so that the same graph always gives the same plan.
    order.sort_by_key(|&at| (std::cmp::Reverse(size(draft, at)), at));
    let mut placed: Vec<usize> = vec![];
    for at in order {
        let Some((first, last)) = lives[at] else { continue };
        let bytes = size(draft, at);
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&other| lives[other].is_some_and(|(a, b)| a <= last && first <= b))
            .map(|&other| (draft.bufs[other].offset, draft.bufs[other].offset + size(draft, other)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end);
        }
        draft.bufs[at].offset = offset;
        draft.arena_bytes = draft.arena_bytes.max(offset + bytes);
        placed.push(at);
    }
    for at in 0..draft.bufs.len() {
        if let Some(BufId(owner)) = draft.bufs[at].of {
            draft.bufs[at].offset += draft.bufs[owner as usize].offset;
        }
    }
}
