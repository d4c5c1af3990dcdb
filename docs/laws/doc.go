// Package laws tests what the repository says of itself: that it does not use retired words, that packages,
// types, files and functions keep to their bounds of size, and one session to how much it may reach, that the
// files of a package read downwards, that the documents name only packages, functions, tests and files that
// exist, that the layout in CONTRIBUTING.md is whole, and that dark colours change no layout.
//
// Tables list what exceeds a bound today, with its figure. A figure may only become smaller, and a test fails
// until its table has the smaller one.
package laws
