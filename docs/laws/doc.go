// Package laws holds the tests of what the repository says of itself: the words that it no longer uses, the
// sizes that bind, and that docs/ARCHITECTURE.md names what there is.
package laws
