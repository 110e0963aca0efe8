// Package lbtest drives one load balancing policy in a test, exactly and
// without waiting: a [Tree] is the parent that a policy talks to, its SubConns
// are in the state that the test says, and [Actor] policies stand where the
// policy under test has children and say what the test lets them say.
//
// In a testing/synctest bubble the policy's timers run on the bubble's clock.
package lbtest
