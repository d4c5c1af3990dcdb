// Package proc runs children and measures what they use: CPU time and memory, from Linux's /proc, and CPU
// profiles. It does not depend on what a child does.
package proc
