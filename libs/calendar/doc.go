// Package calendar knows Brazil's banking days and which instants a wall clock in São Paulo means.
//
// # Banking days
//
// Not a banking day are Saturdays and Sundays, the national holidays, and the days on which banks do not open by
// resolution of the National Monetary Council: Carnival's Monday and Tuesday, Good Friday and Corpus Christi. What a state
// or a town celebrates, or a decree adds, is configuration.
//
//	1 January, 21 April, 1 May, 7 September, 12 October, 2 November, 15 November, 25 December
//	20 November, since 2024 (Law 14.759 of 2023)
//	Easter - 48, - 47, - 2 and + 60 days
//
// # Wall clocks
//
// Brazil moved its clocks by an hour in most summers until 2019, always at midnight, so that some days have no 00:00 and
// others have 23:00 to 24:00 twice, and a government may do it again. An instant is found by one rule, which has an
// answer for each of them and never puts a later wall time before an earlier one: the first instant from which on the
// clock shows this time or a later one for good. The rules of São Paulo are compiled in; what the machine has is not asked.
package calendar
