/* Answers CPUID as a CPU with AVX2 and nothing newer would, in libraries that hide_avx512.py has changed: there each CPUID
 * is an undefined instruction, UD0, and this handler stands in for it. Loaded with LD_PRELOAD by hide_avx512.py. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static void on_undefined(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)registers[REG_RIP];
    unsigned leaf = (unsigned)registers[REG_RAX], sub = (unsigned)registers[REG_RCX], a, b, c, d;
    (void)info;
    if (at[0] != 0x0f || at[1] != 0xff) { /* some other one: let it happen again, and end the program */
        signal(number, SIG_DFL);
        return;
    }
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(sub));
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
    struct sigaction action = {.sa_sigaction = on_undefined, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGILL, &action, NULL) != 0) {
        perror("hide_avx512: sigaction");
        exit(1);
    }
}
