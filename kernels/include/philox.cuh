// Philox4x32-10 on the device; kernels/random/philox.py is the same function on the host.
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

struct Words {
    unsigned word[4];
};

__device__ __forceinline__ Words philox4x32(Words counter, unsigned key0, unsigned key1) {
    unsigned *c = counter.word;
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        const unsigned c0 = unsigned(b >> 32) ^ c[1] ^ key0, c2 = unsigned(a >> 32) ^ c[3] ^ key1;
        c[0] = c0, c[1] = unsigned(b), c[2] = c2, c[3] = unsigned(a);
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;  // the Weyl sequences of the key schedule
    }
    return counter;
}
