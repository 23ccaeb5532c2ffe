/// The declaration of a command. The parser, `--help`, the completion of shells and the manual pages are made from it.
///
/// A new command is one file with a declaration, and its line in `CommandList`.
struct Command: Sendable {
  /// A word of the command line that is not a flag.
  struct Operand: Sendable {
    /// The name of the operand in the help, such as `URL`.
    let name: String
    /// The accepted words; empty if any word is accepted.
    let choices: [String]
    let isFile: Bool

    init(_ name: String, choices: [String] = [], isFile: Bool = false) {
      self.name = name
      self.choices = choices
      self.isFile = isFile
    }
  }

  struct ExitCode: Sendable {
    let code: Int32
    let meaning: String

    init(_ code: Int32, _ meaning: String) {
      self.code = code
      self.meaning = meaning
    }
  }

  let name: String
  /// The words of the command line that are not flags. The command itself checks which of them may be missing.
  let operands: [Operand]
  /// Whether the words after `--` are a command that is run.
  let runsCommand: Bool
  /// The part after the name in the help: `[TEXT | -]`.
  let usage: String
  /// The description for the overview, in a few words.
  let summary: String
  /// The purpose of the command: one or two sentences that begin in lower case.
  let purpose: String
  /// Examples: lines that can be pasted into a shell.
  let examples: [String]
  /// The text of the help: paragraphs that are separated by blank lines. Lines that begin with a space are not wrapped.
  let text: String
  let flags: [Flag]
  /// Paragraphs after the flags.
  let notes: String
  let exitCodes: [ExitCode]
  let run: @Sendable (Arguments) throws(UsageError) -> Int32

  init(
    _ name: String, operands: [Operand] = [], runsCommand: Bool = false, usage: String = "", summary: String,
    purpose: String, examples: [String], text: String = "", flags: [Flag] = [], notes: String = "",
    exitCodes: [ExitCode], run: @escaping @Sendable (Arguments) throws(UsageError) -> Int32
  ) {
    self.name = name
    self.operands = operands
    self.runsCommand = runsCommand
    self.usage = usage
    self.summary = summary
    self.purpose = purpose
    self.examples = examples
    self.text = text
    self.flags = flags
    self.notes = notes
    self.exitCodes = exitCodes
    self.run = run
  }

  /// `drawbridge tail [URL]`.
  var heading: String { "drawbridge \(name)" + (usage.isEmpty ? "" : " \(usage)") }
}

/// Exit codes, after sysexits.h.
enum ExitCode {
  static let ok: Int32 = 0
  /// The message or the command did not succeed.
  static let failed: Int32 = 1
  static let usage: Int32 = 64
  static let data: Int32 = 65
  static let noInput: Int32 = 66
  static let unavailable: Int32 = 69
  static let cannotCreate: Int32 = 73
  static let output: Int32 = 74
  static let temporary: Int32 = 75
  static let configuration: Int32 = 78
}

extension Command.ExitCode {
  static let ok = Self(ExitCode.ok, "done")
  static let usage = Self(ExitCode.usage, "invalid command line")
  static let noFile = Self(ExitCode.noInput, "the configuration file cannot be read")
  static let configuration = Self(ExitCode.configuration, "invalid configuration")
}
