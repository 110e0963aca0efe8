// Package user tests what it imports.
package user
