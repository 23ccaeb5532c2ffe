# Makes roff of the help of a command: paragraphs, examples (indented lines) and lists of terms (two columns).

function roff(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  if (text ~ /^[.']/) text = "\\&" text
  return text
}

# What the current line belongs to: "", "text", "example" or "list".
function begin(what) {
  if (kind == "example" && what != "example") print ".fi\n.RE"
  if (what == "example" && kind != "example") print ".PP\n.RS\n.nf"
  if (what == "text" && kind != "text") print ".PP"
  kind = what
}

# A list begins after its heading, of one or two words, and ends with a blank line.
/^[A-Z][a-z]+( [a-z]+)?:$/ {
  begin("")
  print ".PP\n.B " roff($0)
  inList = 1
  next
}
/^$/ {
  begin("")
  inList = 0
  next
}
# The first line of a list of operands is not indented.
/^[a-z]+ [A-Z]+( [A-Z]+)*   / { inList = 1 }
inList && match($0, /^ ? ?[^ ]/) {
  begin("list")
  term = $0
  sub(/^ +/, "", term)
  description = ""
  if (match(term, /  +/)) {
    description = substr(term, RSTART + RLENGTH)
    term = substr(term, 1, RSTART - 1)
  }
  print ".TP\n.B " roff(term)
  if (description != "") print roff(description)
  next
}
inList {
  sub(/^ +/, "")
  print roff($0)
  next
}
/^ / {
  begin("example")
  sub(/^  /, "")
  print roff($0)
  next
}
{
  begin("text")
  print roff($0)
}
END { begin("") }
