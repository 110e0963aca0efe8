// Package lbtest drives one load balancing policy in a test, without waiting: a [Tree]
// is the policy's parent, the test sets the states of its SubConns, and [Actor]
// policies are its children. A [Stage] is a Tree for an endpoint policy.
//
// In a testing/synctest bubble the policy's timers run on the bubble's clock.
package lbtest
