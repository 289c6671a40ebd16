/* Makes a program believe that the CPU has AVX2 and nothing newer, so that programs which choose their kernels by CPUID
 * can be compared as on such a CPU:
 *
 *     cc -O2 -shared -fPIC -o hide_avx512.so benches/hide_avx512.c
 *     LD_PRELOAD=$PWD/hide_avx512.so PROGRAM
 *
 * The kernel lets CPUID fault (Linux on x86-64, a CPU with CPUID faulting); the handler answers with the newer features
 * taken out. Threads and child processes inherit both. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)registers[REG_RIP];
    unsigned leaf = (unsigned)registers[REG_RAX], sub = (unsigned)registers[REG_RCX], a, b, c, d;
    (void)info;
    if (at[0] != 0x0f || at[1] != 0xa2) { /* some other fault: let it happen again, and end the program */
        signal(number, SIG_DFL);
        return;
    }
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(sub));
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
    if (leaf == 7 && sub == 0) {
        /* F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, FP16 */
        b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    }
    if (leaf == 7 && sub == 1) {
        /* AVX-VNNI, BF16; its signed and 16-bit kinds */
        a &= ~(BIT(4) | BIT(5));
        d &= ~(BIT(4) | BIT(10));
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSEGV, &action, NULL) != 0 || syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0) {
        perror("hide_avx512: this system does not let CPUID fault");
        exit(1);
    }
}
