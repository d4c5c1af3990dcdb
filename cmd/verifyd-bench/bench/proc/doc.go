// Package proc runs children and measures what they use: CPU time and memory, from Linux's /proc, and
// CPU profiles. It knows nothing of what a child does.
package proc
