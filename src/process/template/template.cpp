#include "process/template/template.hpp"

#include <optional>
#include <utility>

#include "drover/base/error.hpp"
#include "process/template/template_state.hpp"

namespace drover::process {

Template::Template(TemplateCommand command) {
  require(command.executable.find('/') != std::string::npos, "the executable of a template is not a path",
          "give a path with a '/', such as sys.executable");
  state_ = std::make_shared<State>(std::move(command));
}

Template::~Template() { state_->end(); }

void Template::use() { set_spawner(state_); }
void Template::use_none() { set_spawner(nullptr); }
void Template::adopt(std::shared_ptr<RunningTemplate> early) { state_->adopt(std::move(early)); }
void Template::start() { state_->start(); }
Readiness Template::wait_ready(Deadline deadline) { return state_->wait_ready(deadline); }
std::string Template::notes() const { return state_->notes(); }
pid_t Template::pid() const { return state_->pid(); }
std::size_t Template::forks() const { return state_->forks(); }
bool Template::fits() const { return state_->fits(); }
void Template::retire() { state_->retire(); }
bool Template::is_over() const { return state_->is_over(); }
void Template::end() { state_->end(); }

}  // namespace drover::process
