// gemm: y = act(x W + b) + residuals. A work item is one tile row of x times up to GROUP tile columns of W.
#pragma once
#define GEMM_X 0          // DRAM address and first tile of each tensor
#define GEMM_X_TILE 1
#define GEMM_W 2          // tiles [K][N]
#define GEMM_BIAS 3       // tiles [N], f32, every row alike; 0: none
#define GEMM_OUT 4
#define GEMM_OUT_TILE 5
#define GEMM_K 6          // tile columns of x
#define GEMM_N 7          // tile columns of y
#define GEMM_ACT 8        // 0 none, 1 ReLU, 2 GELU
#define GEMM_OUT_F32 9    // 1: y is f32, 0: bf16
#define GEMM_RESIDUALS 10 // number; then address and first tile of each
#define GEMM_RESIDUAL 11

struct GemmItem {
    uint32_t row, group, columns;
    GemmItem(Step step, uint32_t item) {
        uint32_t n = ARG(step, GEMM_N), groups = (n + GROUP - 1) / GROUP;
        row = item / groups;
        group = item % groups;
        columns = n - group * GROUP < GROUP ? n - group * GROUP : GROUP;
    }
    // Whether this item is the first or the last of its row in a share.
    bool opens(const Share& share, uint32_t item) const { return group == 0 || item == share.first; }
    bool closes(Step step, const Share& share, uint32_t item) const {
        return (group + 1) * GROUP >= ARG(step, GEMM_N) || item + 1 == share.end;
    }
};
