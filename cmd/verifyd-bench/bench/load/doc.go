// Package load is everything around the measured service: clients that work in a loop or on a schedule, users
// with browsers, integrators' connections, the receiver of callbacks, and sessions that are made without
// HTTP. It depends neither on the service's process nor on the rows.
//
// It costs less than anything that it loads: requests are prepared bytes, answers are read by hand, and each
// client has its own connection.
package load
