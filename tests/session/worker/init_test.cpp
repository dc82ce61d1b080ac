// What drover::init makes of a program: the application, a worker, a keeper, or nothing it knows.
#include "drover/session/worker.hpp"

#include <unistd.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/spawn/init_state.hpp"
#include "session/worker/entry_table.hpp"
#include "session/worker/worker_role.hpp"
#include "support/expect_error.hpp"
#include "support/run_program.hpp"

namespace drover::session {
namespace {

const auto known = entry("init_test.known", [](Worker&) {});

WorkerArguments parsed(std::vector<std::string> texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size());
  for (auto& text : texts) pointers.push_back(text.data());
  return parse_worker_arguments(pointers);
}

TEST(Entries, entry_before_main_is_known_by_its_name) {
  EXPECT_EQ(known.name(), "init_test.known");
  EXPECT_TRUE(EntryTable::instance().find(known));
}

TEST(Entries, unknown_name_is_an_error_that_lists_the_known) {
  EntryTable table;
  test::expect_error(Errc::not_found, [&] { static_cast<void>(table.find("c")); }, {"no entry 'c'; it has none"});
  table.add("a", [](Worker&) {});
  table.add("b", [](Worker&) {});
  test::expect_error(Errc::not_found, [&] { static_cast<void>(table.find("c")); },
                     {"no entry 'c'; it has 'a', 'b'", "before main"});
}

TEST(Entries, same_name_twice_is_an_error_at_init) {
  EntryTable table;
  table.add("twin", [](Worker&) {});
  EXPECT_NO_THROW(table.add("twin", [](Worker&) {})) << "before main nobody could catch it";
  test::expect_error(Errc::invalid_argument, [&] { table.close(); }, {"two entries", "'twin'"});
}

TEST(Entries, late_and_invalid_entries_are_refused) {
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(entry("late", [](Worker&) {})); },
                     {"'late'", "after drover::init"});
  EntryTable table;
  test::expect_error(Errc::invalid_argument, [&] { table.add("", [](Worker&) {}); });
  test::expect_error(Errc::invalid_argument, [&] { table.add("nothing", {}); });
}

TEST(WorkerArguments, text_and_back_is_the_same) {
  const WorkerArguments sent{
      .entry = "sum", .name = "worker 1", .parent = 4711, .arguments = {"", "--name=x", "a b", "--", "\n"}};
  auto texts = to_arguments(sent);
  texts.insert(texts.begin(), "program");
  const auto back = parsed(texts);
  EXPECT_EQ(back.entry, sent.entry);
  EXPECT_EQ(back.name, sent.name);
  EXPECT_EQ(back.parent, sent.parent);
  EXPECT_EQ(back.arguments, sent.arguments);
}

TEST(WorkerArguments, others_are_refused) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"program", "--drover-role=worker"},
      {"program", "--drover-role=worker", "--name=a", "--entry=b", "--parent=1", "--"},
      {"program", "--drover-role=worker", "--entry=b", "--name=a", "--parent=x", "--"},
      {"program", "--drover-role=worker", "--entry=b", "--name=a", "--parent=1", "--more"},
      {"program", "--drover-role=worker", "--entry=b", "--name=a", "--parent=1"}};
  for (const auto& texts : wrong) {
    test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(parsed(texts)); }, {"invalid arguments"});
  }
}

TEST(Init, application_continues_after_init) {
  EXPECT_TRUE(process::was_initialised()) << "main of the tests calls it";
}

TEST(Init, unknown_role_ends_the_program) {
  const auto result = test::run_program({.executable = own_executable(), .arguments = {"--drover-role=shepherd"}});
  EXPECT_EQ(result.status, ExitStatus::exited(kWorkerMisused));
  EXPECT_NE(result.output.find("'--drover-role=shepherd' is not a role"), std::string::npos) << result.output;
}

TEST(Init, worker_without_a_parent_reports_it_and_ends) {
  const auto result = test::run_program({.executable = own_executable(), .arguments = {"--drover-role=worker"}});
  EXPECT_EQ(result.status, ExitStatus::exited(kWorkerMisused));
  EXPECT_NE(result.output.find("invalid arguments of a worker"), std::string::npos) << result.output;
}

TEST(Init, worker_without_its_descriptors_reports_it_and_ends) {
  auto arguments = to_arguments({.entry = known, .name = "lost", .parent = ::getpid(), .arguments = {}});
  const auto result = test::run_program({.executable = own_executable(), .arguments = arguments});
  EXPECT_EQ(result.status, ExitStatus::exited(kWorkerMisused));
  EXPECT_NE(result.output.find("descriptor 4 of a worker"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace drover::session
