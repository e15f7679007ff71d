// The executor on the data movers. BRISC leads: it boots the others, fetches steps, keeps the grid in step and writes results
// (NoC 1); NCRISC reads operands (NoC 0). Kernels are functions of generated `kernels.h`.
#include <cstdint>
#include "risc_common.h"
#include "tensix.h"
#include "tensix_types.h"
#include "noc.h"
#include "noc_overlay_parameters.h"
#include "ckernel_structs.h"
#include "stream_io_map.h"
#include "c_tensix_core.h"
#include "noc_nonblocking_api.h"
#include "internal/firmware_common.h"
#include "internal/circular_buffer_interface.h"
#include "internal/circular_buffer_init.h"
#include "api/dataflow/dataflow_api.h"
#include "common.h"

// Globals that the dataflow API expects its firmware to own.
uint8_t my_x[NUM_NOCS] __attribute__((used));
uint8_t my_y[NUM_NOCS] __attribute__((used));
uint8_t my_logical_x_, my_logical_y_, my_relative_x_, my_relative_y_;
uint32_t noc_reads_num_issued[NUM_NOCS];
uint32_t noc_nonposted_writes_num_issued[NUM_NOCS];
uint32_t noc_nonposted_writes_acked[NUM_NOCS];
uint32_t noc_nonposted_atomics_acked[NUM_NOCS];
uint32_t noc_posted_writes_num_issued[NUM_NOCS];
CBInterface cb_interface[NUM_CIRCULAR_BUFFERS];
uint32_t tt_l1_ptr* rta_l1_base;
uint32_t tt_l1_ptr* crta_l1_base;
uint32_t tt_l1_ptr* sem_l1_base[ProgrammableCoreType::COUNT];
bank_noc_xy_t dram_bank_to_noc_xy[NUM_NOCS][NUM_DRAM_BANKS];
int32_t bank_to_dram_offset[NUM_DRAM_BANKS];
bank_noc_xy_t l1_bank_to_noc_xy[NUM_NOCS][NUM_L1_BANKS];
int32_t bank_to_l1_offset[NUM_L1_BANKS];
uint8_t worker_logical_col_to_virtual_col[round_up_to_mult_of_4(noc_size_x)];
uint8_t worker_logical_row_to_virtual_row[round_up_to_mult_of_4(noc_size_y)];

// Address of byte `at` in bank `bank`.
FORCE_INLINE uint64_t bank_addr(uint32_t bank, uint32_t at) {
    return get_noc_addr_helper(dram_bank_to_noc_xy[NOC_INDEX][bank], at);
}

// Page `p` of an interleaved tensor.
FORCE_INLINE uint64_t page_addr(uint32_t base, uint32_t p, uint32_t bytes) {
    return bank_addr(p & (NUM_DRAM_BANKS - 1), base + p / NUM_DRAM_BANKS * bytes);
}

#include "cbs.h"
#if defined(COMPILE_FOR_NCRISC)
// Appends `n` tiles of an interleaved tensor to a buffer. A block takes `pages` of them, however many are used: blocks of
// one size never wrap inside.
static void read_tiles(uint32_t cb, uint32_t base, uint32_t first, uint32_t n, uint32_t bytes, uint32_t pages) {
    cb_reserve_back(cb, pages);
    uint32_t to = get_write_ptr(cb);
    for (uint32_t i = 0; i < n; i++, to += bytes) noc_async_read(page_addr(base, first + i, bytes), to, bytes);
    noc_async_read_barrier();
    cb_push_back(cb, pages);
}
#else
// Takes a block of `pages` from a buffer and writes its first `n` tiles into an interleaved tensor.
static void write_tiles(uint32_t cb, uint32_t base, uint32_t first, uint32_t n, uint32_t bytes, uint32_t pages) {
    cb_wait_front(cb, pages);
    uint32_t from = get_read_ptr(cb);
    for (uint32_t i = 0; i < n; i++, from += bytes) noc_async_write(from, page_addr(base, first + i, bytes), bytes);
    noc_async_write_barrier();
    cb_pop_front(cb, pages);
}
#endif

#include "kernels.h"

static void init_tables() {
    // Translated coordinates of each bank's worker port.
    static constexpr uint8_t y[8] = {14, 15, 18, 21, 14, 17, 20, 23};
    for (uint32_t b = 0; b < NUM_DRAM_BANKS; b++)
        for (uint32_t n = 0; n < NUM_NOCS; n++)
            dram_bank_to_noc_xy[n][b] = (uint16_t)(y[b] << NOC_ADDR_NODE_ID_BITS | (17 + b / 4));
}

#if defined(COMPILE_FOR_BRISC)
static c_tensix_core core;

// As tt-metal's brisc.cc `device_setup`.
static void device_setup() {
    volatile tt_l1_ptr uint32_t* instructions = core.instrn_buf_base(0);
    volatile tt_reg_ptr uint32_t* cfg = core.cfg_regs_base(0);
    *((volatile uint32_t*)RISCV_DEBUG_REG_DEST_CG_CTRL) = 0;
    WRITE_REG(RISCV_TDMA_REG_CLK_GATE_EN, 0x3f);
    for (int n = 0; n < NUM_NOCS; n++) {
        noc_set_active_instance(n);
        noc_set_cfg_reg(NIU_CFG_0, noc_get_cfg_reg(NIU_CFG_0) | 0x1);
        noc_set_cfg_reg(ROUTER_CFG_0, noc_get_cfg_reg(ROUTER_CFG_0) | 0x1);
    }
    noc_set_active_instance(0);
    WRITE_REG(RISCV_DEBUG_REG_NCRISC_RESET_PC, L1_NCRISC_TEXT);
    WRITE_REG(RISCV_DEBUG_REG_TRISC0_RESET_PC, L1_TRISC0_TEXT);
    WRITE_REG(RISCV_DEBUG_REG_TRISC1_RESET_PC, L1_TRISC1_TEXT);
    WRITE_REG(RISCV_DEBUG_REG_TRISC2_RESET_PC, L1_TRISC2_TEXT);
    WRITE_REG(RISCV_DEBUG_REG_TRISC_RESET_PC_OVERRIDE, 0b111);
    WRITE_REG(RISCV_DEBUG_REG_NCRISC_RESET_PC_OVERRIDE, 0x1);
    cfg[RISCV_IC_INVALIDATE_InvalidateAll_ADDR32] = 0x1f;
    core.ex_zeroacc(instructions);
    core.ex_encc(instructions);
    core.ex_load_const(instructions);
    core.ex_rmw_cfg(0, ECC_SCRUBBER_Enable_RMW, 1);
    core.ex_rmw_cfg(0, ECC_SCRUBBER_Scrub_On_Error_RMW, 1);
    core.ex_rmw_cfg(0, ECC_SCRUBBER_Delay_RMW, 0x100);
    core.initialize_tensix_semaphores(instructions);
}

static void reset_cb_counters() {
    for (uint32_t cb = 0; cb < 32; cb++) {
        get_cb_tiles_received_ptr(cb)[0] = 0;
        get_cb_tiles_acked_ptr(cb)[0] = 0;
    }
}

// All cores have reached this point `generation` times; generations only grow, so nothing needs resetting.
static void grid_barrier(uint32_t generation) {
    uint32_t cores = HEADER[HEADER_CORES], mx = HEADER[HEADER_MASTER], my = HEADER[HEADER_MASTER + 1];
    volatile tt_l1_ptr uint32_t* count = SYNC + SYNC_COUNT;
    volatile tt_l1_ptr uint32_t* flag = SYNC + SYNC_FLAG;
    if (my_x[NOC_INDEX] != mx || my_y[NOC_INDEX] != my) {
        noc_semaphore_inc(get_noc_addr(mx, my, (uint32_t)count), 1);
        noc_async_atomic_barrier();
        while (*flag < generation) {
            invalidate_l1_cache();
            SYNC[SYNC_HEARTBEAT]++;
        }
        return;
    }
    while (*count < (cores - 1) * generation) {
        invalidate_l1_cache();
        SYNC[SYNC_HEARTBEAT]++;
    }
    *flag = generation;
    if (cores > 1) {
        // NoC 1 runs the other way: the rectangle's end comes first.
        uint64_t all = get_noc_multicast_addr(
            HEADER[HEADER_RECT + 2], HEADER[HEADER_RECT + 3], HEADER[HEADER_RECT], HEADER[HEADER_RECT + 1], (uint32_t)flag);
        // The sender lies in the rectangle, so it must count itself.
        noc_semaphore_set_multicast_loopback_src((uint32_t)flag, all, cores);
        noc_async_write_barrier();
    }
}

static void fetch(uint32_t s) {
    noc_async_read(page_addr(HEADER[HEADER_TABLE], s, STEP_BYTES), (uint32_t)step_slot(s), STEP_BYTES);
}

// Each core's stamps fill a row of the stamp table: 256 bytes for every STAMPS steps.
static void flush_stamps(uint32_t steps) {
    uint32_t c = HEADER[HEADER_CORE], rows = (HEADER[HEADER_STEPS] + STAMPS) / STAMPS;
    uint32_t row = c / NUM_DRAM_BANKS * rows + (steps - 1) / STAMPS;
    noc_async_write(L1_STAMPS, bank_addr(c & (NUM_DRAM_BANKS - 1), HEADER[HEADER_STAMPS] + row * STAMPS * 4), STAMPS * 4);
    noc_async_write_barrier();
}

static void lead(uint32_t& base, uint32_t& generation) {
    uint32_t steps = HEADER[HEADER_STEPS];
    volatile tt_l1_ptr uint32_t* stamps = (volatile tt_l1_ptr uint32_t*)L1_STAMPS;
    if (steps) fetch(0);
    for (uint32_t s = 0; s < steps; s++) {
        noc_async_read_barrier();
        Step step = step_slot(s);
        SYNC[SYNC_STEP] = s;
        SYNC[SYNC_KERNEL] = step[STEP_KERNEL];
        stamps[s % STAMPS] = READ_REG(RISCV_DEBUG_REG_WALL_CLOCK_L);
        SYNC[SYNC_GO] = base + s + 1;
        if (s + 1 < steps) fetch(s + 1);
        setup_cbs(step);
        run_kernel(step);
        for (uint32_t r = 0; r < 4; r++) {
            while (SYNC[SYNC_DONE + r] < base + s + 1) {
                invalidate_l1_cache();
                SYNC[SYNC_HEARTBEAT]++;
            }
        }
        reset_cb_counters();
        if (step[STEP_BARRIER]) grid_barrier(++generation);
        if ((s + 1) % STAMPS == 0) flush_stamps(s + 1);
    }
    base += steps;
    stamps[steps % STAMPS] = READ_REG(RISCV_DEBUG_REG_WALL_CLOCK_L);
    flush_stamps(steps + 1);
}
#else
static void follow(uint32_t s, uint32_t done) {
    Step step = step_slot(s);
    setup_cbs(step);
    run_kernel(step);
    SYNC[SYNC_DONE] = done;
}
#endif

extern "C" __attribute__((used, noinline)) int main() {
    configure_csr();
    extern uint32_t __kernel_data_lma[];
    do_crt1((uint32_t tt_l1_ptr*)__kernel_data_lma);
    risc_init();
    init_tables();
#if defined(COMPILE_FOR_BRISC)
    device_setup();
    reset_cb_counters();
    noc_init(MEM_NOC_ATOMIC_RET_VAL_ADDR);
    noc_local_state_init(0);
    noc_local_state_init(1);
    SYNC[SYNC_STATUS] = READY;
    deassert_all_reset();
    uint32_t base = 0, generation = 0;
    for (uint32_t launch = 1;; launch++) {
        while (SYNC[SYNC_LAUNCH] < launch) {
            invalidate_l1_cache();
            SYNC[SYNC_HEARTBEAT]++;
        }
        if (HEADER[HEADER_FORMAT] != TTC_FORMAT) {
            SYNC[SYNC_ERROR] = ERROR_FORMAT;
            for (;;) asm volatile("" ::: "memory");
        }
        lead(base, generation);
        SYNC[SYNC_FINISHED] = launch;
    }
#else
    noc_local_state_init(NOC_INDEX);
    SYNC[SYNC_STATUS + 1] = READY;
    uint32_t next = 1;
    for (uint32_t base = 0;; base += HEADER[HEADER_STEPS]) {
        // The table's length is known once the first step of a launch may run.
        uint32_t s = 0;
        do {
            while (SYNC[SYNC_GO] < next) invalidate_l1_cache();
            follow(s++, next++);
        } while (s < HEADER[HEADER_STEPS]);
    }
#endif
}
TTC_START
