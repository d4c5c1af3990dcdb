// Package access is who acts in an account, what they are there, and what each role may do. It knows neither
// accounts nor storage: whether somebody has a role is judged by who stores accounts
// (edge/account/accountstore).
package access
