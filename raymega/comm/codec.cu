// Gradient codec, one pass over memory: `codec.py` says what is computed and has the torch twin, with equal bits.
//
// Every operation is rounded by itself (no fused multiply-add) and keeps subnormal numbers, as torch does on a CPU.
// CUDA's own operators and intrinsics do the latter only without -ftz=true, which CuPy passes: so they are written out.

#define BLOCK 256  // elements that share a scale; threads of a block

#define OPERATION(name, instruction)                                               \
    static __device__ float name(float a, float b) {                               \
        float x;                                                                   \
        asm(instruction ".f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));            \
        return x;                                                                  \
    }

OPERATION(sum, "add.rn")
OPERATION(difference, "sub.rn")
OPERATION(product, "mul.rn")
OPERATION(quotient, "div.rn")

static __device__ float summed(const float* grad, const float* residual, float inverse, long long i) {
    return sum(product(grad[i], inverse), residual[i]);
}

static __device__ bool is_finite(float x) {
    return fabsf(x) <= 3.402823466e38f;  // false for nan
}

// The largest |x| of a block; nan if any of them is not finite.
static __device__ float largest(float x) {
    __shared__ float tops[BLOCK / 32];
    __shared__ int is_bad;
    if (threadIdx.x == 0) is_bad = 0;
    __syncthreads();
    if (!is_finite(x)) is_bad = 1;
    float top = fabsf(x);
    for (int reach = 16; reach > 0; reach /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, reach));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    top = tops[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp) top = fmaxf(top, tops[warp]);
    return is_bad ? __int_as_float(0x7fffffff) : top;
}

extern "C" __global__ void encode_int8(const float* grad, const float* residual, float inverse, long long n,
                                       float* scales, signed char* codes, float* left) {
    const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
    const float value = i < n ? summed(grad, residual, inverse, i) : 0.0f;
    float scale = quotient(largest(value), 127.0f);
    if (scale < 1.1754943508e-38f) scale = 0.0f;  // subnormal: its inverse may not be finite
    const float to_code = scale > 0.0f ? quotient(1.0f, scale) : 0.0f;  // nan: 0
    const float code = to_code > 0.0f ? fminf(fmaxf(rintf(product(value, to_code)), -127.0f), 127.0f) : 0.0f;
    if (i < n) {
        codes[i] = (signed char)code;
        left[i] = difference(value, product(code, scale));
    }
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

extern "C" __global__ void add_int8(const float* scales, const signed char* codes, long long n, float* out) {
    const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
    if (i < n) out[i] = sum(out[i], product((float)codes[i], scales[blockIdx.x]));
}

// Round to nearest even; nan stays nan.
static __device__ unsigned short bf16_of(float x) {
    const unsigned int bits = __float_as_uint(x);
    if (x != x) return 0x7fc0;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static __device__ float of_bf16(unsigned short code) {
    return __uint_as_float((unsigned int)code << 16);
}

static __device__ unsigned short fp16_of(float x) {
    unsigned short code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
    return code;
}

static __device__ float of_fp16(unsigned short code) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(code));
    return x;
}

#define ENCODE_16_BITS(name, code_of, of_code)                                                                  \
    extern "C" __global__ void encode_##name(const float* grad, const float* residual, float inverse,           \
                                             long long n, unsigned short* codes, float* left) {                  \
        const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;                                         \
        if (i >= n) return;                                                                                      \
        const float value = summed(grad, residual, inverse, i);                                                  \
        codes[i] = code_of(value);                                                                               \
        left[i] = difference(value, of_code(codes[i]));                                                           \
    }                                                                                                            \
    extern "C" __global__ void add_##name(const unsigned short* codes, long long n, float* out) {                \
        const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;                                         \
        if (i < n) out[i] = sum(out[i], of_code(codes[i]));                                                \
    }

ENCODE_16_BITS(bf16, bf16_of, of_bf16)
ENCODE_16_BITS(fp16, fp16_of, of_fp16)
