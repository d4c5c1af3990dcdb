// Package laws tests what the repository says of itself: that it does not use retired words, keeps to its
// bounds of size, that the files of a package read downwards, that the documents name only packages,
// functions, tests and files that exist, that the layout in CONTRIBUTING.md is whole, and that dark colours
// change no layout.
package laws
