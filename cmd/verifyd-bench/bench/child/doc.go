// Package child is the bench's own binary as a child process: a ceiling, or a part of the service alone.
// Start is the bench's side of it, Main the child's. They exchange lines of JSON over the child's standard
// input and output: first a Config, then one Order after another. Each line is answered by one line.
package child
