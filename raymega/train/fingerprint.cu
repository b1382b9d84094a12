// Fingerprint of a box, one pass over memory: `fingerprint.py` says what is computed and has the torch twin, with equal
// bits. Whole numbers modulo 2^64 add up to the same in any order, so blocks need not wait for each other.

#define BLOCK 256  // threads

#define FINGERPRINT(bytes, type)                                                                                 \
    extern "C" __global__ void fingerprint_##bytes(const type* bits, const long long* rows,                      \
                                                   const long long* columns, long long n, long long width,       \
                                                   long long stride, unsigned long long* total) {                \
        unsigned long long sum = 0;                                                                              \
        const long long step = gridDim.x * (long long)BLOCK;                                                     \
        for (long long i = blockIdx.x * (long long)BLOCK + threadIdx.x; i < n; i += step) {                      \
            const long long row = i / width, column = i % width;                                                 \
            const long long element = bits[row * stride + column];                                               \
            sum += (unsigned long long)element * (unsigned long long)(rows[row] ^ columns[column]);              \
        }                                                                                                        \
        for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, reach);              \
        if (threadIdx.x % 32 == 0) atomicAdd(total, sum);                                                        \
    }

FINGERPRINT(1, unsigned char)
FINGERPRINT(2, short)
FINGERPRINT(4, int)
FINGERPRINT(8, long long)
