// Package pix holds the words of the Pix arrangement that every other package
// speaks: participants, channels and the identifiers of the SPI. It depends on
// the standard library alone and does no I/O.
package pix
