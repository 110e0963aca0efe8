// Package listen describes the listeners of the API: what --listen asks for
// ([Spec]), what callers may do on them ([Policy]), and who calls ([Callers]).
package listen
