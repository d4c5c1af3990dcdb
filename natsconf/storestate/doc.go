// Package storestate is what is known of the store as a whole: whether it is in service, which master keys it
// has, how full it is, and whether it answers.
package storestate
