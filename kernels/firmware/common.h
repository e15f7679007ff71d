// What the executor does alike on every RISC of a core: set up circular buffers, find this core's share of a step.
#pragma once
#include "layout.h"

// Register bases that the API expects its firmware to own; NCRISC has none of them.
#if !defined(COMPILE_FOR_NCRISC)
#if defined(__PTR_CONST)
#define PTR_CONST const
#else
#define PTR_CONST
#endif
namespace ckernel {
volatile tt_reg_ptr uint* PTR_CONST regfile = reinterpret_cast<volatile uint*>(REGFILE_BASE);
volatile tt_reg_ptr uint* PTR_CONST pc_buf_base = reinterpret_cast<volatile uint*>(PC_BUF_BASE);
volatile tt_reg_ptr uint* PTR_CONST mailbox_base[4] = {
    reinterpret_cast<volatile uint tt_reg_ptr*>(TENSIX_MAILBOX0_BASE),
    reinterpret_cast<volatile uint tt_reg_ptr*>(TENSIX_MAILBOX1_BASE),
    reinterpret_cast<volatile uint tt_reg_ptr*>(TENSIX_MAILBOX2_BASE),
    reinterpret_cast<volatile uint tt_reg_ptr*>(TENSIX_MAILBOX3_BASE)};
}  // namespace ckernel
#endif

#define SYNC ((volatile tt_l1_ptr uint32_t*)L1_SYNC)
#define HEADER ((volatile tt_l1_ptr uint32_t*)L1_HEADER)

typedef volatile tt_l1_ptr uint32_t* Step;

static inline Step step_slot(uint32_t s) { return (Step)(L1_STEPS + (s & 1) * STEP_BYTES); }

// This core's work items of a step.
struct Share {
    uint32_t first, end;
    explicit Share(Step step) {
        uint32_t items = step[STEP_ITEMS], core = HEADER[HEADER_CORE], cores = HEADER[HEADER_CORES];
        first = core * items / cores;
        end = (core + 1) * items / cores;
    }
};

#define ARG(step, i) ((step)[STEP_ARGS + (i)])

// Sizes are bytes on the data movers and 16-byte words on the TRISCs (`cb_addr_shift`).
#if !defined(UCK_CHLKC_MATH)
static inline void setup_cbs(Step step) {
    uint32_t mask = step[STEP_CB_MASK];
    Step c = step + STEP_CBS;
    for (uint32_t cb = 0; mask; cb++, mask >>= 1) {
        if (!(mask & 1)) continue;
        LocalCBInterface& local = get_local_cb_interface(cb);
        local.fifo_size = c[1] >> cb_addr_shift;
        local.fifo_limit = (c[0] + c[1]) >> cb_addr_shift;
        local.fifo_wr_ptr = local.fifo_rd_ptr = c[0] >> cb_addr_shift;
        local.fifo_num_pages = c[2];
        local.fifo_page_size = c[3] >> cb_addr_shift;
        local.tiles_acked_received_init = 0;
        local.fifo_wr_tile_ptr = 0;
        c += 4;
    }
}
#endif

#define TTC_START                                                                          \
    extern "C" [[gnu::section(".start"), gnu::naked, noreturn]] void _start() {            \
        asm volatile(                                                                      \
            ".option push\n.option norelax\n"                                              \
            "lui gp,%hi(__global_pointer$)\naddi gp,gp,%lo(__global_pointer$)\n.option pop\n" \
            "lui sp,%hi(__stack_top-16)\naddi sp,sp,%lo(__stack_top-16)\n"                 \
            "call main\n");                                                                \
    }
