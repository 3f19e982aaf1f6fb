/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Before the C library (LD_PRELOAD): where a program of the name in NETRIG_TEST_REFUSED is loaded, each helper that it calls is one that
 * no kernel has, so that this kernel's verifier refuses it, as an older one's does. With NETRIG_TEST_REFUSED_IN in processes of that
 * subcommand alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* As attribute `size` has it, however many fields this header knows. */
static long load(long (*next)(long, ...), const union bpf_attr *asked, size_t size)
{
	const struct bpf_insn *insns = (const struct bpf_insn *)(unsigned long)asked->insns;
	struct bpf_insn *changed = calloc(asked->insn_cnt, sizeof(*changed));
	union bpf_attr *attr = malloc(size);
	long result;
	int error;

	if (!changed || !attr)
		abort();
	memcpy(attr, asked, size);
	memcpy(changed, insns, asked->insn_cnt * sizeof(*changed));
	for (__u32 i = 0; i < asked->insn_cnt; i++)
		if (changed[i].code == (BPF_JMP | BPF_CALL) && changed[i].src_reg == 0)
			changed[i].imm = 100000;
	attr->insns = (unsigned long)changed;
	result = next(SYS_bpf, (long)BPF_PROG_LOAD, (long)attr, (long)size, 0L, 0L, 0L);
	error = errno;
	free(attr);
	free(changed);
	errno = error;
	return result;
}

/* Whether the first argument of this process is `subcommand`. */
static int is_subcommand(const char *subcommand)
{
	char line[4096] = "";
	FILE *file = fopen("/proc/self/cmdline", "r");
	size_t count = file ? fread(line, 1, sizeof(line) - 2, file) : 0;

	if (file)
		fclose(file);
	return strlen(line) < count && strcmp(line + strlen(line) + 1, subcommand) == 0;
}

long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	const char *refused = getenv("NETRIG_TEST_REFUSED"), *in = getenv("NETRIG_TEST_REFUSED_IN");
	long arguments[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && arguments[0] == BPF_PROG_LOAD && refused && (!in || is_subcommand(in))) {
		const union bpf_attr *attr = (const union bpf_attr *)arguments[1];

		if (strncmp(attr->prog_name, refused, sizeof(attr->prog_name)) == 0)
			return load(next, attr, arguments[2]);
	}
	return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
