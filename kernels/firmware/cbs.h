// Circular buffers by content. 0-15 hold bf16, 16-19 f32 that products read as Tf32, 20-31 f32 that reaches Dst untouched:
// the format tables of the build (`chlkc_descriptors.h`) must say so.
#pragma once
#define CB_A 0          // operand tiles, a whole row of them
#define CB_B 1          // weight tiles
#define CB_OUT 8        // results, bf16
#define CB_BIAS 20      // bias, every row alike
#define CB_RESIDUAL 21
#define CB_OUT_F32 24   // results, f32
