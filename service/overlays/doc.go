// Package overlays keeps the overlays of operators: how a caller describes one, and how the store has
// it. An overlay is one entry of the store, so that all daemons of a store have the same ones.
//
// What an overlay does is in package xds/overlay.
package overlays
