// L1 map and formats that the host, the executor and the kernels share. Addresses 0x0-0x5F belong to the reset vector, NoC return words and ARC firmware.
#pragma once
#include <cstdint>

#define TTC_FORMAT 1  // of sync block, header and step; the executor refuses another

// Sync block, word indices from L1_SYNC. Semaphores are 16 bytes apart.
#define L1_SYNC 0x400
#define SYNC_STATUS 0     // 5 words: each RISC writes READY when its init is done
#define SYNC_GO 8         // step number that the RISCs of this core may run
#define SYNC_DONE 9       // 4 words: last step finished by NCRISC, TRISC0..2
#define SYNC_LAUNCH 13    // host: number of the launch to run
#define SYNC_FINISHED 14  // number of the launch that this core has finished
#define SYNC_ERROR 15     // nonzero: why this core stopped
#define SYNC_COUNT 16     // barrier counter of the master core
#define SYNC_FLAG 20      // barrier generation released by the master
#define SYNC_HEARTBEAT 24 // BRISC counts while it waits
#define SYNC_STEP 25      // step that BRISC is in
#define SYNC_KERNEL 26    // its kernel
#define SYNC_WORDS 64
#define READY 0xB0070001u
#define ERROR_FORMAT 1u

// Header that the host writes per core, word indices from L1_HEADER.
#define L1_HEADER 0x600
#define HEADER_FORMAT 0
#define HEADER_STEPS 1
#define HEADER_TABLE 2   // DRAM address of the step table: step s in bank s % 8 at table + s / 8 * STEP_BYTES
#define HEADER_CORE 3    // index of this core in the grid, row-major
#define HEADER_CORES 4
#define HEADER_MASTER 5  // x, y
#define HEADER_RECT 7    // x0, y0, x1, y1
#define HEADER_STAMPS 11 // DRAM address of the cycle stamps: core c, step s at bank c % 8
#define HEADER_WORDS 16

// A step, word indices.
#define STEP_KERNEL 0
#define STEP_ITEMS 1     // work items of the whole grid; core c takes [c * items / cores, (c + 1) * items / cores)
#define STEP_CB_MASK 2
#define STEP_BARRIER 3   // 1: the grid meets before the next step
#define STEP_ARGS 4      // 60 words, the kernel's own
#define STEP_CBS 64      // per set bit of the mask: address, bytes, pages, page bytes
#define STEP_WORDS 128
#define STEP_BYTES 512
#define L1_STEPS 0x800   // two slots: one runs while the next arrives

#define L1_STAMPS 0xC00  // cycle at the start of each step, written to DRAM every STAMPS steps
#define STAMPS 64

#define GROUP 4  // result tiles in Dst at once; its other four are operands

#define L1_BRISC_TEXT 0x4000
#define L1_NCRISC_TEXT 0xC000
#define L1_TRISC0_TEXT 0x14000
#define L1_TRISC1_TEXT 0x24000
#define L1_TRISC2_TEXT 0x34000
#define L1_DATA 0x44000  // circular buffers up to the end of L1
