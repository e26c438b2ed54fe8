/*
 * From clone3 to exec.  The order is fixed by what each step needs: the terminal
 * and the descriptors while they are still open, the working directory with the run's own rights, the filter last because it
 * stays.
 *
 * Everything the child has to say is written into its plan, which it shares
 * with init; the end of file on ready_fd, by exec or by death, says that it
 * will not be touched again.
 */
#include "init/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "init/raw.h"
#include "proto/init.h"

#define CANDIDATE_MAX 4096

/*
 * clone3 gives the child an empty stack, so it cannot return through C: the
 * stub keeps fn and arg in registers, which the kernel copies.
 */
#if defined(__x86_64__)
__asm__(".text\n"
	".globl child_clone3\n"
	".hidden child_clone3\n"
	".type child_clone3, @function\n"
	"child_clone3:\n"
	"	mov %rdx, %r8\n"
	"	mov %rcx, %r9\n"
	"	mov $435, %eax\n"
	"	syscall\n"
	"	test %rax, %rax\n"
	"	jz 1f\n"
	"	ret\n"
	"1:	xor %ebp, %ebp\n"
	"	mov %r9, %rdi\n"
	"	call *%r8\n"
	"	hlt\n"
	".size child_clone3, . - child_clone3\n"
	".globl child_clone\n"
	".hidden child_clone\n"
	".type child_clone, @function\n"
	"child_clone:\n"
	"	mov %rdx, %r9\n"
	"	mov %rcx, %r8\n"
	"	xor %edx, %edx\n"
	"	xor %r10d, %r10d\n"
	"	mov $56, %eax\n"
	"	syscall\n"
	"	test %rax, %rax\n"
	"	jz 1f\n"
	"	ret\n"
	"1:	xor %ebp, %ebp\n"
	"	mov %r8, %rdi\n"
	"	call *%r9\n"
	"	hlt\n"
	".size child_clone, . - child_clone\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl child_clone3\n"
	".hidden child_clone3\n"
	".type child_clone3, %function\n"
	"child_clone3:\n"
	"	mov x8, #435\n"
	"	svc #0\n"
	"	cbz x0, 1f\n"
	"	ret\n"
	"1:	mov x29, #0\n"
	"	mov x0, x3\n"
	"	blr x2\n"
	"	brk #0\n"
	".size child_clone3, . - child_clone3\n"
	".globl child_clone\n"
	".hidden child_clone\n"
	".type child_clone, %function\n"
	"child_clone:\n"
	"	mov x5, x2\n"
	"	mov x6, x3\n"
	"	mov x2, #0\n"
	"	mov x3, #0\n"
	"	mov x4, #0\n"
	"	mov x8, #220\n"
	"	svc #0\n"
	"	cbz x0, 1f\n"
	"	ret\n"
	"1:	mov x29, #0\n"
	"	mov x0, x6\n"
	"	blr x5\n"
	"	brk #0\n"
	".size child_clone, . - child_clone\n");
#endif

static size_t length(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

static bool has_slash(const char *s)
{
	for (; *s; s++)
		if (*s == '/')
			return true;
	return false;
}

/* One line on the run's stderr, in the words of dash. */
static void say(const char *name, const char *between, const char *what)
{
	struct iovec v[] = {
		{ (void *)(uintptr_t) "sh: 1: ", 7 },
		{ (void *)(uintptr_t)name, length(name) },
		{ (void *)(uintptr_t)between, length(between) },
		{ (void *)(uintptr_t)what, length(what) },
		{ (void *)(uintptr_t) "\n", 1 },
	};

	(void)raw3(SYS_writev, 2, v, 5); /* to nobody, when the run's stderr is broken */
}

static __attribute__((noreturn)) void leave(struct child_plan *p, uint32_t step, long rc, int code)
{
	p->sys = (uint32_t)-rc;
	p->step = step;
	for (;;)
		(void)raw1(SYS_exit_group, code);
}

static void must(struct child_plan *p, long rc)
{
	if (rc < 0)
		leave(p, INIT_STEP_SPAWN, rc, 125);
}

static void take_stdio(struct child_plan *p)
{
	for (int i = 0; i < 3; i++) {
		long fd = p->stdio[i];

		if (fd < 0) {
			fd = raw4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
			must(p, fd);
		}
		/* Sources are above 2 (init keeps 0 to 2 open), so none is overwritten. */
		must(p, raw3(SYS_dup3, fd, i, 0));
	}
	if (p->ready_fd != 3)
		must(p, raw3(SYS_dup3, p->ready_fd, 3, O_CLOEXEC));
	must(p, raw3(SYS_close_range, 4, ~0U, 0));
}

static void set_limits(const struct child_plan *p)
{
	struct {
		uint64_t soft, hard;
	} none = { 0, 0 }, files = { p->nofile_soft, p->nofile_hard },
	  processes = { p->processes, p->processes };

	/* Lowering is always allowed; a core pattern may run a program on the host. */
	(void)raw4(SYS_prlimit64, 0, RLIMIT_CORE, &none, 0);
	(void)raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, 0);
	/*
	 * A fork that pids.max refuses is refused when all of the child has been made, which
	 * costs a bomb little and its neighbours much: other sessions waited for up to 2 s.
	 * This limit is looked at first: 60 ms.
	 */
	if (p->processes)
		(void)raw4(SYS_prlimit64, 0, RLIMIT_NPROC, &processes, 0);
	(void)raw1(SYS_umask, 022);
}

static void become(struct child_plan *p)
{
	long rc = raw2(SYS_setgroups, 0, 0);

	/* Without CAP_SETGID there is nothing to give up that init itself could not use. */
	if (rc < 0 && rc != -EPERM)
		must(p, rc);
	must(p, raw3(SYS_setresgid, p->gid, p->gid, p->gid));
	must(p, raw3(SYS_setresuid, p->uid, p->uid, p->uid));
}

static void enter(struct child_plan *p)
{
	/* A magic link (/proc/self/fd/N) could lead out of what the run may name. */
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_NO_MAGICLINKS };
	long fd = raw4(SYS_openat2, AT_FDCWD, p->cwd, &how, sizeof(how));
	long rc = fd < 0 ? fd : raw1(SYS_fchdir, fd);

	if (rc >= 0)
		return; /* close-on-exec closes it */
	say("cd", ": can't cd to ", p->cwd);
	leave(p, INIT_STEP_CWD, rc, 126);
}

/*
 * Init needs clone3 and openat2 itself, and filters are inherited: so each run gets its
 * own refusal of the two whose arguments (namespaces, the mode of a file) no filter sees.
 */
static void add_filter(struct child_plan *p)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	must(p, raw5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(p, raw3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

/* One candidate; returns only when it failed. */
static long try_exec(struct child_plan *p, char *file)
{
	long rc = raw3(SYS_execve, file, p->argv, p->envp);

	if (rc != -ENOEXEC)
		return rc;
	/* As a shell does: a file without a format is a script of sh. */
	p->argv[-1] = (char *)(uintptr_t) "/bin/sh";
	p->argv[0] = file;
	return raw3(SYS_execve, "/bin/sh", p->argv - 1, p->envp);
}

static long search(struct child_plan *p, const char *name)
{
	char candidate[CANDIDATE_MAX];
	const char *at = p->path;
	size_t name_bytes = length(name);
	long worst = -ENOENT;

	for (;;) {
		const char *end = at;
		size_t n = 0;
		long rc = -ENAMETOOLONG;

		while (*end && *end != ':')
			end++;
		if ((size_t)(end - at) + name_bytes + 2 <= sizeof(candidate)) {
			for (; at < end; at++)
				candidate[n++] = *at;
			if (n)
				candidate[n++] =
					'/'; /* an empty element is the current directory */
			for (size_t i = 0; i <= name_bytes; i++)
				candidate[n + i] = name[i];
			rc = try_exec(p, candidate);
		}
		if (rc == -EACCES)
			worst = rc;
		else if (rc != -ENOENT && rc != -ENOTDIR && rc != -ENAMETOOLONG)
			return rc;
		if (!*end)
			return worst;
		at = end + 1;
	}
}

void child_main(void *arg)
{
	struct child_plan *p = arg;
	uint64_t none = 0;
	char *name = p->argv[0];
	bool missing;
	long rc;

	p->born = 1;
	must(p, raw0(SYS_setsid));
	if (p->terminal)
		must(p, raw3(SYS_ioctl, p->stdio[0], TIOCSCTTY, 0));
	take_stdio(p);
	set_limits(p);
	become(p);
	enter(p);
	if (p->filter)
		add_filter(p);
	must(p, raw4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof(none)));

	if (!*name)
		rc = -ENOENT;
	else if (has_slash(name))
		rc = try_exec(p, name);
	else
		rc = search(p, name);
	missing = rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -ENAMETOOLONG;
	say(name, ": ", missing ? "not found" : strerrordesc_np((int)-rc));
	leave(p, INIT_STEP_EXEC, rc, missing ? 127 : 126);
}
