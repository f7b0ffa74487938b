// A convolution with a filter of FILTER x FILTER weights; each work-item computes `tile_size_x` x `tile_size_y` results.
// The host program sets block_size_x, block_size_y, tile_size_x, tile_size_y and use_local.

#define FILTER 7

#if use_local
#define WIDTH (block_size_x * tile_size_x + FILTER - 1)
#define HEIGHT (block_size_y * tile_size_y + FILTER - 1)
#endif

__kernel __attribute__((reqd_work_group_size(block_size_x, block_size_y, 1)))
void convolution(__global float *out, __global const float *image, __constant float *weights, const int nx, const int ny) {
    const int tx = get_local_id(0);
    const int ty = get_local_id(1);
    const int x0 = get_group_id(0) * block_size_x * tile_size_x;
    const int y0 = get_group_id(1) * block_size_y * tile_size_y;
    const int width = nx + FILTER - 1;

#if use_local
    __local float part[HEIGHT][WIDTH];
    for (int j = ty; j < HEIGHT; j += block_size_y) {
        for (int i = tx; i < WIDTH; i += block_size_x) {
            part[j][i] = image[(y0 + j) * width + x0 + i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    for (int v = 0; v < tile_size_y; v++) {
        for (int u = 0; u < tile_size_x; u++) {
            const int i = tx + u * block_size_x;
            const int j = ty + v * block_size_y;
            float sum = 0.0f;
            for (int b = 0; b < FILTER; b++) {
                for (int a = 0; a < FILTER; a++) {
#if use_local
                    sum += part[j + b][i + a] * weights[b * FILTER + a];
#else
                    sum += image[(y0 + j + b) * width + x0 + i + a] * weights[b * FILTER + a];
#endif
                }
            }
            out[(y0 + j) * nx + x0 + i] = sum;
        }
    }
}
