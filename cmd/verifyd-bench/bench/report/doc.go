// Package report turns measurements into figures, and prints them: samples of single runs become the medians
// of a row, and the rows a table or a JSON document. It measures nothing itself except the machine's disk.
package report
