// The executor on TRISC0-2 (unpack, math, pack): waits for each step that BRISC releases and runs its kernel's compute half.
#include "internal/firmware_common.h"
#include "api/compile_time_args.h"
#include "ckernel.h"
#include "ckernel_gpr_map.h"
#include "internal/debug/fw_debug.h"
#include "llk_param_structs.h"
#include "internal/circular_buffer_interface.h"
using namespace ckernel;
#include "chlkc_descriptors.h"
#include "api/compute/common.h"
#include "api/compute/tile_move_copy.h"
#include "api/compute/matmul.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
#include "api/compute/eltwise_unary/relu.h"
#include "common.h"

// Globals that the compute API expects its firmware to own.
uint32_t tt_l1_ptr* rta_l1_base;
uint32_t tt_l1_ptr* crta_l1_base;
uint32_t tt_l1_ptr* sem_l1_base[ProgrammableCoreType::COUNT];
uint8_t my_logical_x_, my_logical_y_, my_relative_x_, my_relative_y_;
uint32_t unp_cfg_context = 0;
uint32_t pack_sync_tile_dst_ptr = 0;
uint32_t math_sync_tile_dst_index = 0;
uint32_t gl_alu_format_spec_reg = 0;
uint32_t op_info_offset = 0;
namespace ckernel {
volatile tt_reg_ptr uint* PTR_CONST reg_base = reinterpret_cast<volatile uint*>(0xFFB10000);
#if defined(__INSTRN_BUFFER_TOS)
volatile tt_reg_ptr uint32_t* const instrn_buffer = reinterpret_cast<volatile uint32_t*>(INSTRN_BUF_BASE);
#endif
uint32_t cfg_state_id = 0;
uint32_t dest_offset_id = 0;
}  // namespace ckernel
#if !defined(UCK_CHLKC_MATH)
CBInterface cb_interface[NUM_CIRCULAR_BUFFERS];
#endif

#include "compute_common.h"
#include "kernels.h"

extern "C" __attribute__((used, noinline)) int main() {
    configure_csr();
    extern uint32_t __kernel_data_lma[];
    do_crt1((uint32_t tt_l1_ptr*)__kernel_data_lma);
#pragma GCC unroll 0
    for (int i = 0; i < 64; i++) regfile[i] = 0;
    reset_cfg_state_id();
    get_cfg_pointer()[PRNG_SEED_Seed_Val_ADDR32] = 0;
    riscv_wait(600);
#if defined(UCK_CHLKC_UNPACK)
    memory_write(RISCV_DEBUG_REG_DBG_FEATURE_DISABLE, 0);
#endif
    SYNC[SYNC_STATUS + 2 + COMPILE_FOR_TRISC] = READY;
    uint32_t next = 1;
    for (;;) {
        uint32_t s = 0;
        do {
            while (SYNC[SYNC_GO] < next) invalidate_l1_cache();
            Step step = step_slot(s++);
#if !defined(UCK_CHLKC_MATH)
            setup_cbs(step);
#endif
#ifdef UCK_CHLKC_MATH
            zeroacc();
#endif
#ifdef UCK_CHLKC_UNPACK
            zerosrc();
#endif
            run_kernel(step);
            tensix_sync();
            SYNC[SYNC_DONE + 1 + COMPILE_FOR_TRISC] = next++;
        } while (s < HEADER[HEADER_STEPS]);
    }
}
TTC_START
