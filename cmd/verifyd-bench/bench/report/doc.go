// Package report makes figures of measurements, and prints them: samples of single runs become the medians of
// a row, these a table or a JSON document. It measures nothing itself but the machine's disk.
package report
