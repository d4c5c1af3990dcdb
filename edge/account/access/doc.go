// Package access is who acts in an account, what they are there, and what each role may do. It knows neither
// accounts nor storage: the package that stores accounts (edge/account/accountstore) judges whether somebody
// has a role.
package access
