// Package laws tests what the repository says of itself: that it does not use retired words, keeps to its
// bounds of size, and that docs/ARCHITECTURE.md names only what exists.
package laws
