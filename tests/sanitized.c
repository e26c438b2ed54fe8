/*
 * In garret-engine and garret-init of a sanitized build: how much freed memory a process keeps.
 * By default it is up to 256 MiB, as much as a session for files may have in all, whose
 * workers were killed for it after some thousand operations.  The zygote, of which init
 * and the workers are forks, has no environment to say this in.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "quarantine_size_mb=16:thread_local_quarantine_size_kb=256";
}
