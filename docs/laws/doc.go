// Package laws tests what the repository says of itself: that it does not use retired words, keeps to its
// bounds of size, that docs/ARCHITECTURE.md names only what exists, and that dark colours change no layout.
package laws
